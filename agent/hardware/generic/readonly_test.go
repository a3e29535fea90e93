package generic

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/hardware"
	"ironroot/internal/sysfs"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// readOnlyNVMe is a write-protected disk of a machine in a directory.
func readOnlyNVMe(t *testing.T) (*Manager, *bytes.Buffer) {
	t.Helper()
	sys := sysfs.Root{Path: t.TempDir()}
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o400); err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(path, "/", "!") // as the kernel names a device that is not right below /dev
	for file, content := range map[string]string{"size": "16384", "ro": "1", "dev": "259:0"} {
		for _, dir := range []string{"block", "class/block"} {
			file := sys.Sys(dir, name, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(content+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := newManager(t, block.Device{Name: name, Path: path, Type: "disk", Transport: "nvme", Size: 8 << 20})
	m.o.System = sys
	log := &bytes.Buffer{}
	m.o.Log = slog.New(slog.NewTextHandler(log, nil))
	return m, log
}

// A write-protected disk is never reported as erased.
func TestReadOnlyDisk(t *testing.T) {
	m, _ := readOnlyNVMe(t)
	if _, err := m.eraseExpress(t.Context(), hardware.Call{}); !errors.Is(err, erase.ErrReadOnly) {
		t.Errorf("express: got %v, want %v", err, erase.ErrReadOnly)
	}
	if _, err := m.eraseDevices(t.Context(), hardware.Call{}); !errors.Is(err, erase.ErrReadOnly) {
		t.Errorf("full: got %v, want %v", err, erase.ErrReadOnly)
	}
	n := nodeWith(t, `"driver_internal_info": {"agent_erase_skip_read_only": true}`)
	for name, step := range map[string]hardware.StepFunc{"express": m.eraseExpress, "full": m.eraseDevices} {
		result, err := step(t.Context(), hardware.Call{Node: n})
		if err != nil {
			t.Errorf("%s, skipping read-only disks: %v", name, err)
		}
		disks, _ := m.o.Disks(t.Context())
		sameResult(t, result,
			map[string]diskReport{disks[0].Path: {Untouched: map[string]string{disks[0].Path: "read-only"}}})
	}
	m, log := readOnlyNVMe(t)
	if _, err := m.eraseMetadata(t.Context(), hardware.Call{}); err != nil ||
		!strings.Contains(log.String(), "reason=read-only") {
		t.Errorf("metadata: got %v and log %q, want the disk skipped, and the reason in the log", err, log)
	}
}
