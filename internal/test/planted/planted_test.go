package planted

import (
	"bytes"
	"io"
	"testing"
)

func TestWith(t *testing.T) {
	data := make([]byte, 4*grain+10)
	data[grain], data[3*grain] = 1, 3
	i := New(data)
	input := append(i.Patch(grain+2, []byte{7, 8, 9}), i.Patch(3*grain+254, []byte("across"))...)
	want := bytes.Clone(data)
	copy(want[grain+2:], []byte{7, 8, 9})
	copy(want[3*grain+254:], "across")
	r := i.With(input)
	for _, size := range []int64{int64(len(data)), 3, 100} {
		var got []byte
		for at := int64(0); at < int64(len(data)); at += size {
			part := make([]byte, min(size, int64(len(data))-at))
			if n, err := r.ReadAt(part, at); err != nil {
				t.Fatalf("at %d: %d bytes, %v", at, n, err)
			}
			got = append(got, part...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("in pieces of %d bytes the image differs", size)
		}
	}
	if n, err := r.ReadAt(make([]byte, 20), 4*grain); n != 10 || err != io.EOF {
		t.Errorf("at the end: got %d, %v, want 10, EOF", n, err)
	}
	if got := i.With([]byte{0xff, 0xff, 0xff, 0xff, 1}); got == nil {
		t.Error("an input that is cut off has no reader")
	}
	if n, err := New(nil).With(input).ReadAt(make([]byte, 1), 0); n != 0 || err != io.EOF {
		t.Errorf("an empty image: got %d, %v", n, err)
	}
}
