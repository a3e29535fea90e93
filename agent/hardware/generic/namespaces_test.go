package generic

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ironroot/agent/hardware"
	"ironroot/internal/sysfs"
	"ironroot/internal/testenv"
	"ironroot/storage/block"
)

// The result of an NVMe disk names the namespaces that were not erased, or reports that they are not known.
func TestEraseNamesNamespaces(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, diskSize), 512) // it fails every NVMe command
	sys := sysfs.Root{Path: t.TempDir()}
	for _, name := range []string{"nvme0n1", filepath.Base(path)} {
		for file, text := range map[string]string{"size": strconv.Itoa(diskSize / 512), "ro": "0"} {
			for _, dir := range []string{"block", "class/block"} {
				file := sys.Sys(dir, name, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	m := newManager(t, block.Device{Name: "nvme0n1", Path: path, Type: "disk", Transport: "nvme", Size: diskSize})
	m.o.System = sys
	var log strings.Builder
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	for name, step := range map[string]hardware.StepFunc{"metadata": m.eraseMetadata, "express": m.eraseExpress} {
		log.Reset()
		result, err := step(t.Context(), hardware.Call{})
		if tried := strings.Contains(log.String(), "disk not formatted"); tried != (name == "express") {
			t.Errorf("%s: got a Format that was tried: %v", name, tried)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		method := string(result.(map[string]any)[path].(diskReport).Erased[path])
		want := "metadata; other namespaces of the NVMe subsystem are not known: "
		if !strings.HasPrefix(method, want) {
			t.Errorf("%s: got method %q, want %q at its start", name, method, want)
		}
	}
	m = newManager(t, block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: diskSize})
	m.o.System, m.o.Log = sys, slog.New(slog.NewTextHandler(&log, nil))
	log.Reset()
	if _, err := m.eraseExpress(t.Context(), hardware.Call{}); err != nil ||
		strings.Contains(log.String(), "disk not formatted") {
		t.Errorf("express on a disk of another kind: got %v and log %s, want no Format tried", err, &log)
	}
}
