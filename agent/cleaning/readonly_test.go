package cleaning

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// readOnlyNVMe is a write-protected disk of a machine in a directory.
func readOnlyNVMe(t *testing.T) (*Steps, *bytes.Buffer) {
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
	m := newMachineOn(sys, block.Device{Name: name, Path: path, Type: "disk", Transport: "nvme", Size: 8 << 20})
	log := &bytes.Buffer{}
	m.o.Log = slog.New(slog.NewTextHandler(log, nil))
	return m, log
}

// A write-protected disk is never reported as erased. It is an error of erase_devices, unless the node permits to skip
// it. The other steps always skip it.
//
// Parity: P6 (read-only disks)
func TestReadOnlyDisk(t *testing.T) {
	m, _ := readOnlyNVMe(t)
	if _, err := m.EraseDevices(t.Context(), nil); !errors.Is(err, erase.ErrReadOnly) {
		t.Errorf("full: got %v, want %v", err, erase.ErrReadOnly)
	}
	for name, step := range map[string]func(*Steps) stepFunc{
		"full":     func(m *Steps) stepFunc { return m.EraseDevices },
		"express":  func(m *Steps) stepFunc { return m.EraseExpress },
		"metadata": func(m *Steps) stepFunc { return m.EraseMetadata },
	} {
		for _, skip := range []bool{false, true} {
			if name == "full" && !skip {
				continue
			}
			m, log := readOnlyNVMe(t)
			n := nodeWith(t, fmt.Sprintf(`"driver_internal_info": {"agent_erase_skip_read_only": %v}`, skip))
			result, err := step(m)(t.Context(), n)
			if err != nil {
				t.Errorf("%s, agent_erase_skip_read_only %v: %v", name, skip, err)
				continue
			}
			disks, _ := m.o.Disks.Disks(t.Context())
			path := disks[0].Path
			sameResult(t, result, map[string]diskReport{path: {Untouched: map[string]string{path: "read-only"}}})
			if !strings.Contains(log.String(), "reason=read-only") {
				t.Errorf("%s: got log %q, want the reason why the disk was skipped", name, log)
			}
			var record evidence.Record
			data := result.(map[string]any)[path].(diskReport).Evidence.Envelope.Record
			if err := json.Unmarshal(data, &record); err != nil {
				t.Fatal(err)
			}
			if record.Outcome != evidence.NotErased || record.Reason != path+": read-only" {
				t.Errorf("%s: got evidence of %q because of %q, want %q because the disk is read-only",
					name, record.Outcome, record.Reason, evidence.NotErased)
			}
		}
	}
}
