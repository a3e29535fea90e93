package cleaning

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/sysfs"
)

// silentNVMe is a machine whose only disk is an NVMe disk that fails every NVMe command.
func silentNVMe(t *testing.T) (m *Steps, path string, log *strings.Builder) {
	t.Helper()
	path = testenv.Loop(t, testenv.SparseFile(t, diskSize), 512) // fails them all
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
	m = newMachine(t, block.Device{Name: "nvme0n1", Path: path, Type: "disk", Transport: "nvme", Size: diskSize})
	log = &strings.Builder{}
	m.o.System, m.o.Log = sys, slog.New(slog.NewTextHandler(log, nil))
	return m, path, log
}

// The result of an NVMe disk names the namespaces that were not erased, or reports that they are not known.
func TestEraseNamesNamespaces(t *testing.T) {
	m, path, log := silentNVMe(t)
	for name, step := range map[string]stepFunc{"metadata": m.EraseMetadata, "express": m.EraseExpress} {
		log.Reset()
		result, err := step(t.Context(), nil)
		if tried := strings.Contains(log.String(), "disk not formatted"); tried != (name == "express") {
			t.Errorf("%s: got a Format that was tried: %v", name, tried)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		method := result.(map[string]any)[path].(diskReport).Erased[path].String()
		want := "metadata; other namespaces of the NVMe subsystem are not known: "
		if !strings.HasPrefix(method, want) {
			t.Errorf("%s: got method %q, want %q at its start", name, method, want)
		}
	}
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
		return []block.Device{{Name: filepath.Base(path), Path: path, Type: "disk", Size: diskSize}}, nil
	})
	log.Reset()
	if _, err := m.EraseExpress(t.Context(), nil); err != nil ||
		strings.Contains(log.String(), "disk not formatted") {
		t.Errorf("express on a disk of another kind: got %v and log %s, want no Format tried", err, log)
	}
}

// erase_devices_express sends no Format if the node switches off secure erase of NVMe disks. The setting for other
// disks has no effect, because the step erases only their metadata. The evidence contains the setting.
//
// Parity: P5 (agent_enable_nvme_secure_erase)
func TestExpressHonoursSecureErase(t *testing.T) {
	m, path, log := silentNVMe(t)
	for settings, want := range map[string]bool{
		``:                                       true,
		`"agent_enable_nvme_secure_erase": true`: true,
		`"agent_enable_nvme_secure_erase": false`:    false,
		`"agent_enable_nvme_secure_erase": "False"`:  false,
		`"agent_enable_ata_secure_erase": false`:     true,
		`"agent_erase_devices_iterations": 0`:        true,
		`"agent_continue_if_secure_erase_failed": 0`: true, // the metadata are erased in any case
	} {
		log.Reset()
		n := nodeWith(t, `"driver_internal_info": {`+settings+`}`)
		result, err := m.EraseExpress(t.Context(), n)
		if err != nil {
			t.Errorf("%s: %v", settings, err)
			continue
		}
		if tried := strings.Contains(log.String(), "disk not formatted"); tried != want {
			t.Errorf("%s: got a Format that was tried: %v, want %v", settings, tried, want)
		}
		report := result.(map[string]any)[path].(diskReport)
		if method := report.Erased[path].String(); !strings.HasPrefix(method, "metadata; other namespaces") {
			t.Errorf("%s: got method %q, want metadata, and that other namespaces are not known", settings, method)
		}
		var record evidence.Record
		if err := json.Unmarshal(report.Evidence.Envelope.Record, &record); err != nil {
			t.Fatal(err)
		}
		options := map[string]any{"nvme_secure_erase": want}
		if diff := cmp.Diff(options, record.Requested.Options); diff != "" {
			t.Errorf("%s: options in the evidence differ (-want +got):\n%s", settings, diff)
		}
	}
}

// Without secure erase of NVMe disks, erase_devices_express promises no more than erase_devices_metadata: unattached
// namespaces are part of the result.
func TestExpressNotesUnattached(t *testing.T) {
	m := newMachine(t)
	addController(t, m.o.System, "nvme0")
	fake(m).controller = func(context.Context, string, []uint32) (erase.Controller, error) { return unattached, nil }
	n := nodeWith(t, `"driver_internal_info": {"agent_enable_nvme_secure_erase": false}`)
	result, err := m.EraseExpress(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	path := m.o.System.Dev("nvme0")
	sameResult(t, result, map[string]diskReport{path: {Untouched: map[string]string{path: unattached.NotErased}}})
}
