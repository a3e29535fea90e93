package unpack

import "io"

// countingReader counts the bytes that are read. It does not read ahead.
type countingReader struct {
	r io.ByteReader
	n int64
}

// ReadByte reads one byte.
func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// Read fills p, unless the source ends or fails before.
func (c *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		b, err := c.ReadByte()
		if err != nil {
			return i, err
		}
		p[i] = b
	}
	return len(p), nil
}
