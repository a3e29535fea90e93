package raid

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/md"
)

// ReadMembership reads image files, and devices with their size of sectors.
func TestReadMembership(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	for _, name := range []string{"imsm", "ddf", "imsm-4096"} {
		if err := os.WriteFile(file, testenv.FirmwareRAID(t, name), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadMembership(t.Context(), file, []string{"SCSI0123456789012345678", "large1"})
		if want := name != "imsm-4096"; err != nil || got.IsActive() != want { // a file has sectors of 512 bytes
			t.Errorf("%s: got %+v and %v, want active %v", name, got, err, want)
		}
	}
	if _, err := ReadMembership(t.Context(), file+".missing", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	if _, err := ReadExternal(t.Context(), file+".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	if _, err := Read(t.Context(), file+".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	testenv.Root(t)
	got, err := ReadMembership(t.Context(), testenv.Loop(t, file, 4096), []string{"large1"})
	if err != nil || got.Format != md.IMSM || !got.IsActive() {
		t.Errorf("sectors of 4096 bytes: got %+v and %v, want an active member", got, err)
	}
}
