package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/hardware"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// A manager that selects disks is not asked which ones, so that none may be listed: whatever its level, unless it does
// not support the machine, and also if its level cannot be determined.
func TestSelectsDisks(t *testing.T) {
	level := func(n int) string { return answer(fmt.Sprintf(`{"level":%d}`, n)) }
	const selects = "filter /dev/sda: hardware manager site selects disks, which executables cannot do"
	const unusable = "hardware manager site selects disks, but is not usable: evaluate support: evaluate: "
	const advice = "; no disk is used: correct the manager, or build the image without it"
	for _, tt := range []struct {
		name, evaluate string
		change         func(*Manager)
		want           string // "" is the disk
	}{
		{"best", level(3), nil, selects},
		{"level of the built-in manager", level(1), nil, selects},
		{"other machine", level(0), nil, ""},
		{"crash", "echo broken >&2; exit 3", nil, unusable + "executable failed: exit status 3: broken" + advice},
		{
			"error", `echo '{"type":"error","message":"no adapter"}'`, nil,
			unusable + "no adapter" + advice,
		},
		{"garbage", "echo garbage", nil, unusable + "protocol error: "},
		{"no level", answer("{}"), nil, unusable + "protocol error: level {}: want 0 to 100" + advice},
		{"impossible level", level(-1), nil, unusable + `protocol error: level {"level":-1}: want 0 to 100` + advice},
		{
			"hangs", "exec sleep 3600", func(m *Manager) { m.describeTimeout = short },
			unusable + "not done within 200ms" + advice,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, selecting := range []bool{false, true} {
				text, want := site, ""
				if selecting {
					text, want = strings.Replace(site, `"steps"`, `"selects_disks":true,"steps"`, 1), tt.want
				}
				m, _, err := manager(t, answer(text), "")
				if err != nil {
					t.Fatal(err)
				}
				path := evaluating(t, tt.evaluate)
				m.start = plain(path)
				if tt.change != nil {
					tt.change(m)
				}
				checkFilter(t, want, hardware.Custom{Manager: m.Hardware()})
			}
		})
	}
}

// evaluating returns an executable that only answers the request evaluate.
func evaluating(t *testing.T, evaluate string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manager")
	writeExecutable(t, path, []byte("#!/bin/sh\nread -r line\ncase $line in\n*'\"evaluate\"'*) "+evaluate+";;\nesac\n"))
	return path
}

// checkFilter checks whether a disk is listed with a built-in manager, which is before all others, and custom managers.
// want is the start of the error, "" if the disk is listed.
func checkFilter(t *testing.T, want string, custom ...hardware.Manager) {
	t.Helper()
	managers, err := hardware.Load(t.Context(), append([]hardware.Manager{keeper{}}, custom...),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	got, err := managers.Filter(t.Context(), []block.Device{{Name: "sda", Path: "/dev/sda"}})
	switch {
	case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want) || got != nil):
		t.Errorf("got %v and %v, want %q", got, err, want)
	case want == "" && (err != nil || len(got) != 1):
		t.Errorf("got %v and %v, want the disk", got, err)
	}
}

// keeper stands for the built-in manager: it keeps all disks.
type keeper struct{}

func (keeper) Class() string                          { return "keeper" }
func (keeper) Name() string                           { return "keeper" }
func (keeper) Version() string                        { return "1" }
func (keeper) Support(context.Context) hardware.Level { return hardware.Generic }

func (keeper) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	return d, true, nil
}

// loadLog returns what is logged when managers of the operator are loaded.
func loadLog(t *testing.T, custom ...hardware.Manager) string {
	t.Helper()
	var log bytes.Buffer
	if _, err := hardware.Load(t.Context(), append([]hardware.Manager{keeper{}}, custom...),
		slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

// An executable that could not be described could select disks. One whose load panics is no exception.
func TestNotDescribed(t *testing.T) {
	testenv.ExpectPanics(t)
	load := func(path string) (*Manager, error) {
		switch path {
		case "/m/panic":
			panic("boom")
		case "/m/broken":
			return nil, errors.New("describe: not done within 10s")
		}
		m, _, err := manager(t, answer(site), "")
		return m, err
	}
	for _, tt := range []struct{ path, want string }{
		{"/m/broken", "describe: not done within 10s"},
		{"/m/panic", "internal error: panic: boom"},
	} {
		list := loadAll([]string{"/m/good", tt.path}, " in /r", nil, load)
		checkFilter(t, "", custom(list[:1])...)
		checkFilter(t, "hardware manager "+tt.path+" in /r could select disks, but is not usable: "+tt.want+
			"; no disk is used: correct the manager, or build the image without it", custom(list)...)
		log := loadLog(t, custom(list)...)
		line := fmt.Sprintf(`msg="custom hardware manager ignored" manager="%s in /r" err="%s"`+"\n", tt.path, tt.want)
		if !strings.Contains(log, line) || strings.Count(log, tt.want) != 1 {
			t.Errorf("log lacks %s:\n%s", line, log)
		}
	}
}

// custom marks managers as the operator's.
func custom(list []hardware.Manager) []hardware.Manager {
	var marked []hardware.Manager
	for _, m := range list {
		marked = append(marked, hardware.Custom{Manager: m})
	}
	return marked
}

// usable returns the managers that could be described.
func usable(list []hardware.Manager) []*Manager {
	var managers []*Manager
	for _, m := range list {
		if m, ok := m.(*Manager); ok {
			managers = append(managers, m)
		}
	}
	return managers
}
