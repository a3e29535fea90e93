// Package planted modifies images for fuzz targets of file system readers, without copying the image for every run.
// The fuzzer's input is a list of patches. Their places count only the parts of the image that are not zero, so that a
// small change of the input changes used bytes.
package planted

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// grain is the size of a part, in bytes. A part is zero or not as a whole.
const grain = 256

// header is the size of a patch's header: place (3 bytes) and length (1 byte).
const header = 4

// Image is an image that patches are applied to.
type Image struct {
	data  []byte
	parts []int // offsets of the parts that are not zero
}

// New returns an Image of data, which must not change.
func New(data []byte) *Image {
	i := &Image{data: data}
	for at := 0; at < len(data); at += grain {
		if slices.ContainsFunc(data[at:min(at+grain, len(data))], func(b byte) bool { return b != 0 }) {
			i.parts = append(i.parts, at)
		}
	}
	return i
}

// Patch returns the fuzzer's input that replaces up to 255 bytes at an offset of the image. Inputs can be concatenated.
// Patch panics if the offset is in a part of zeros or the content is longer, because its arguments are constants of
// tests.
func (i *Image) Patch(offset int, content []byte) []byte {
	part, found := slices.BinarySearch(i.parts, offset/grain*grain)
	if !found || len(content) > 255 {
		panic("planted: no such place, or too much for it")
	}
	place := uint32(part*grain + offset%grain)
	return append([]byte{byte(place), byte(place >> 8), byte(place >> 16), byte(len(content))}, content...)
}

// With returns a reader of the image with the patches of a fuzzer's input. Every input is valid. Where patches overlap,
// the last one applies.
func (i *Image) With(input []byte) io.ReaderAt {
	r := &reader{data: i.data}
	for len(i.parts) > 0 && len(input) >= header {
		place := int(binary.LittleEndian.Uint32(input) & 0xffffff)
		content := input[header:min(header+int(input[3]), len(input))]
		input = input[header+len(content):]
		at := i.parts[place/grain%len(i.parts)] + place%grain
		r.patches = append(r.patches, patch{at, content})
	}
	return r
}

type patch struct {
	at      int
	content []byte
}

type reader struct {
	data    []byte
	patches []patch
}

func (r *reader) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, errors.New("planted: negative offset")
	}
	if offset >= int64(len(r.data)) {
		return 0, io.EOF
	}
	at := int(offset)
	n := copy(p, r.data[at:])
	for _, patch := range r.patches {
		if from := patch.at - at; from < n && from+len(patch.content) > 0 {
			copy(p[max(from, 0):n], patch.content[max(-from, 0):])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
