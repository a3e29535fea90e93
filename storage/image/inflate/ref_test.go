package inflate

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"
)

func TestRef(t *testing.T) {
	b, err := os.ReadFile(os.Getenv("REF"))
	if err != nil {
		t.Skip()
	}
	var d Inflater
	n, bad := 0, 0
	for len(b) > 0 {
		size, l, ok, crc := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), b[8] != 0, binary.LittleEndian.Uint32(b[9:])
		stream := b[13:][:l]
		b = b[13+l:]
		n++
		out := make([]byte, size)
		got, err := d.Fill(out, bytes.Clone(stream))
		if (err == nil) != ok || ok && (crc32.ChecksumIEEE(out) != crc || got != int(size)) {
			bad++
			if bad < 10 {
				t.Errorf("%d: size %d, stream %x: %v, zlib %v", n, size, stream[:min(l, 100)], err, ok)
			}
		}
	}
	t.Log(n, bad)
}
