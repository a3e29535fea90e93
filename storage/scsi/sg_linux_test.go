package scsi

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// The ioctl of a file that is no block device fails.
func TestSG(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := New(SG{f}).SanitizeState(); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("got %v, want ENOTTY", err)
	}
}
