package external

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ironroot/agent/hardware"
	"ironroot/initramfs/squashfs"
	"ironroot/internal/attack"
	"ironroot/internal/attack/attacktest"
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
	roots, log := loadRoots(t, writeRoot(t, map[string]string{"site": string(inRoot)}, squashfs.Entry{
		Path: "bin/attack", Mode: 0o755, Size: int64(len(text)),
		Open: func() (squashfs.File, error) { return os.Open(program) },
	}))
	for name, loaded := range map[string][]hardware.Manager{
		"executable": Load(t.Context(), dir, slog.New(slog.DiscardHandler), nil), "root": roots,
	} {
		t.Run(name, func(t *testing.T) {
			managers := usable(loaded)
			if len(managers) != 1 {
				t.Fatalf("got %d managers, want 1: %s", len(managers), log)
			}
			got, err := managers[0].Steps(hardware.Clean, nil, nil)[0].Run(t.Context(), hardware.Call{})
			if err != nil {
				t.Fatal(err)
			}
			report, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			attacktest.Check(t, report, attack.PermittedOutsideContainers())
		})
	}
}
