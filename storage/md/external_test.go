package md

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// imsmAnchor is the start of the anchor that mdadm writes.
var imsmAnchor = []byte("Intel Raid ISM Cfg Sig. 1.1.00")

// The anchor of IMSM is found in the last sector but one, for both sizes of sectors, and nowhere else.
func TestFindIMSM(t *testing.T) {
	for _, sector := range []int64{512, 4096} {
		for at, want := range map[int64]External{
			diskSize - 2*sector: IMSM, 0: "",
			diskSize - sector: "", diskSize - 2*sector + 1: "", diskSize - 3*sector: "",
		} {
			data := make([]byte, diskSize)
			copy(data[at:], imsmAnchor)
			got, err := FindExternal(bytes.NewReader(data), diskSize, sector)
			if err != nil || got != want {
				t.Errorf("sectors of %d bytes, anchor at byte %d: got %q and %v, want %q", sector, at, got, err, want)
			}
		}
	}
}

// A DDF header that mdadm wrote is found in the last 512 bytes, and only with a valid checksum.
func TestFindDDF(t *testing.T) {
	header := golden(t, "ddf")
	for _, sector := range []int64{512, 4096} {
		data := make([]byte, diskSize)
		copy(data[diskSize-ddfBlock:], header)
		for flip, want := range map[int]External{-1: DDF, 0: "", 4: "", 8: "", ddfBlock - 1: ""} {
			changed := bytes.Clone(data)
			if flip >= 0 {
				changed[diskSize-ddfBlock+flip] ^= 1
			}
			got, err := FindExternal(bytes.NewReader(changed), diskSize, sector)
			if err != nil || got != want {
				t.Errorf("sectors of %d bytes, byte %d changed: got %q and %v, want %q", sector, flip, got, err, want)
			}
		}
	}
}

// A device that is too small has no metadata, and a device that cannot be read is an error that names the place.
func TestExternalBounds(t *testing.T) {
	for _, size := range []int64{0, 1, 511, 512, 1023, 1024} {
		got, err := FindExternal(bytes.NewReader(make([]byte, size)), size, 512)
		if err != nil || got != "" {
			t.Errorf("%d bytes: got %q and %v, want nothing", size, got, err)
		}
	}
	broken := errors.New("broken")
	if _, err := FindExternal(failing{broken}, diskSize, 512); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

var _ io.ReaderAt = failing{}
