package external

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ironroot/agent/hardware"
	"ironroot/initramfs/squashfs"
	"ironroot/internal/test/attack"
	"ironroot/internal/test/attack/attacktest"
)

// A hardware manager does not escape, neither as an executable of the ramdisk nor in a root.
func TestAttacks(t *testing.T) {
	dir := onRoot(t)
	program := filepath.Join(t.TempDir(), "attack")
	attacktest.Build(t, program)
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(onRoot(t), "attack")
	writeExecutable(t, own, text)
	step := func(path string) string {
		return `printf '{"type":"result","result":%s}\n' "$(` + path + `)"`
	}
	manager, err := os.ReadFile(script(t, answer(site), step(own)))
	if err != nil {
		t.Fatal(err)
	}
	writeExecutable(t, filepath.Join(dir, "manager"), manager)
	inRoot, err := os.ReadFile(script(t, answer(site), step("/bin/attack")))
	if err != nil {
		t.Fatal(err)
	}
	rootDir := writeRoot(t, map[string]string{"site": string(inRoot)}, squashfs.Entry{
		Path: "bin/attack", Mode: 0o755, Size: int64(len(text)),
		Content: squashfs.Path(program),
	})
	log := slog.New(slog.DiscardHandler)
	executables := func() []hardware.Manager { return Load(t.Context(), dir, log, nil) }
	roots := func() []hardware.Manager { return LoadRoots(t.Context(), rootDir, log, nil) }
	more := attack.PermittedOutsideContainers()
	more["userfaultfd"] = "the operator permits it"
	for _, tt := range []struct {
		name      string
		calls     string // what the operator permits
		load      func() []hardware.Manager
		permitted map[string]string
	}{
		{"executable", "", executables, attack.PermittedOutsideContainers()},
		{"root", "", roots, attack.PermittedOutsideContainers()},
		{"executable with a call", `{"manager":["userfaultfd"],"other":["bpf"]}`, executables, more},
		{"root with a call", `{"site":["userfaultfd"],"manager":["bpf"]}`, roots, more},
		{"unknown call", `{"manager":["userfaultfd","raed"]}`, executables, attack.PermittedOutsideContainers()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.calls != "" {
				permitCalls(t, dir, tt.calls)
				permitCalls(t, rootDir, tt.calls)
			}
			managers := usable(tt.load())
			if len(managers) != 1 {
				t.Fatalf("got %d managers, want 1", len(managers))
			}
			got, err := managers[0].Steps(hardware.Clean, nil, nil)[0].Run(t.Context(), hardware.Call{})
			if err != nil {
				t.Fatal(err)
			}
			report, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			attacktest.Check(t, report, tt.permitted)
		})
	}
}
