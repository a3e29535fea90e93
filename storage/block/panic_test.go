package block

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// panicHandler is a log handler that panics.
type panicHandler struct{ slog.Handler }

func (panicHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (panicHandler) Handle(context.Context, slog.Record) error { panic("in a log line") }

// A disk whose description causes a panic is unreadable; the others are listed.
func TestDisksContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	root := t.TempDir()
	for _, name := range []string{"sda", "sdb", "sdc"} {
		for _, dir := range []string{"sys/block", "sys/class/block"} {
			path := filepath.Join(root, dir, name)
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, "size"), []byte("2048\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The error of a link to itself is logged, and the log panics.
	if err := os.Symlink("ro", filepath.Join(root, "sys/class/block/sdb/ro")); err != nil {
		t.Fatal(err)
	}
	sys := sysfs.Root{Path: root, Files: &sysfs.Reader{Log: slog.New(panicHandler{})}}
	disks, err := Disks(t.Context(), sys)
	var caught *goroutine.PanicError
	if !errors.Is(err, ErrUnreadable) || !errors.As(err, &caught) ||
		!strings.Contains(err.Error(), "block device sdb: ") {
		t.Errorf("got error %v, want %v with the panic of sdb", err, ErrUnreadable)
	}
	if len(disks) != 2 || disks[0].Name != "sda" || disks[1].Name != "sdc" {
		t.Errorf("got disks %+v, want sda and sdc", disks)
	}
}
