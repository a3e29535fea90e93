package vmedia

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/sysfs"
)

// An overwrite whose context has ended is an error, and not a success with the old content.
func TestOverwriteIsCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmem0")
	write(t, path, "content")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("command aborted")
	cancel(cause)
	if err := overwrite(ctx, path, 7); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		t.Errorf("got %q, %v, want no change", got, err)
	}
}

// Media that cannot be listed are an error.
func TestRemoveWithoutDisks(t *testing.T) {
	err := removeAll(t.Context(), sysfs.Root{Path: t.TempDir()}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), "list virtual media: ") {
		t.Errorf("got %v, want an error", err)
	}
}
