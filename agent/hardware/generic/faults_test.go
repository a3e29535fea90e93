package generic

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/internal/test/raidtest"
	"ironroot/storage/sysfs"
)

func TestStepDescriptions(t *testing.T) {
	for kind, abortable := range map[hardware.Kind]bool{
		hardware.Clean: true, hardware.Deploy: false, hardware.Service: false,
	} {
		for _, step := range newManager(t).Steps(kind, nil, nil) {
			want := abortable || strings.HasPrefix(step.Name, "burnin_") ||
				step.Interface == raidInterface && step.Name != "apply_configuration"
			if got := step.Abortable != nil && *step.Abortable; got != want {
				t.Errorf("%s %s: got abortable %v, want %v", kind, step.Name, got, want)
			}
			if _, described := step.ArgsInfo["match_patterns"]; described != (step.Name == "clean_uefi_nvram") {
				t.Errorf("%s %s: got match_patterns described: %v", kind, step.Name, described)
			}
		}
	}
}

// write_image returns the errors of its parts.
func TestWriteImageErrors(t *testing.T) {
	for argument, want := range map[string]string{"": "", "null": "", `"text"`: "text"} {
		args := map[string]json.RawMessage{}
		if argument != "" {
			args["configdrive"] = json.RawMessage(argument)
		}
		if got, err := textArgument(hardware.Call{Args: args}, "configdrive"); err != nil || got != want {
			t.Errorf("configdrive %s: got %q and %v, want %q", argument, got, err, want)
		}
	}
	m := newManager(t)
	m.o.Imager = imaging.New(imaging.Options{
		Config: m.o.Config, Node: &node.Cache{}, Disks: m.o.Disks, System: m.o.System,
	})
	image := json.RawMessage(`{"id": "image", "urls": ["http://127.0.0.1/image"], "image_type": "whole-disk-image",
		"os_hash_algo": "sha256", "os_hash_value": "` + strings.Repeat("0", 64) + `"}`)
	for name, c := range map[string]struct {
		args map[string]json.RawMessage
		want string
	}{
		"image_info": {map[string]json.RawMessage{"image_info": json.RawMessage(`5`)}, "InvalidCommandParamsError"},
		"configdrive": {
			map[string]json.RawMessage{"image_info": image, "configdrive": json.RawMessage(`5`)},
			"InvalidCommandParamsError",
		},
		"config_drive": {
			map[string]json.RawMessage{"image_info": image, "config_drive": json.RawMessage(`"text"`)},
			"InvalidCommandParamsError",
		},
		"no disk": {
			map[string]json.RawMessage{"image_info": image, "configdrive": json.RawMessage("null")}, "DeviceNotFound",
		},
	} {
		result, err := stepOf(t, m, hardware.Deploy, "write_image")(t.Context(), hardware.Call{Args: c.args})
		if typeOf(err) != c.want || result != nil {
			t.Errorf("%s: got %v and %v, want %s", name, result, err, c.want)
		}
	}
}

// Without a list of its own, the manager uses the machine's.
func TestDisksOfTheSystem(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	m := New(Options{Config: config.NewLive(&config.Config{}), System: sys})
	if disks, err := m.Disks(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no disks in sysfs: got %v and %v, want %v", paths(disks), err, fs.ErrNotExist)
	}
	raidtest.ListDisks(t, sys, "16777216", "sda")
	if disks, err := m.o.Disks.Disks(t.Context()); err != nil || !slices.Equal(paths(disks), []string{"/dev/sda"}) {
		t.Errorf("got %v and %v, want /dev/sda", paths(disks), err)
	}
}

// The time limit for disks to appear starts when the drivers are loaded.
func TestInitialize(t *testing.T) {
	settled := make(chan struct{})
	m := newManager(t)
	m.o.Settled = settled
	if err := m.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !m.settledSince(time.Time{}).IsZero() {
		t.Error("got a time before the drivers are there")
	}
	close(settled)
	for m.settledSince(time.Time{}).IsZero() { // limited by the test binary
		time.Sleep(time.Millisecond)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	m.o.Settled = make(chan struct{})
	if m.settled(cancelled) {
		t.Error("cancelled: got drivers that are there")
	}
}

// The manager waits for drivers however short the wait for disks is, and only once if they are not loaded in time.
func TestWaitDisksWithoutDrivers(t *testing.T) {
	for _, tt := range []struct {
		disks time.Duration // the longest wait for disks
		want  time.Duration
	}{{0, driverTimeout}, {time.Millisecond, driverTimeout}, {time.Hour, time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			m := newManager(t)
			m.o.Settled = make(chan struct{})
			m.o.Config.Update(func(c *config.Config) { c.DiskWaitAttempts, c.DiskWaitDelay = 1, tt.disks })
			for _, want := range []time.Duration{tt.want, 0} {
				started := time.Now()
				if err := m.WaitDisks(t.Context(), nil); err != nil || time.Since(started) != want {
					t.Errorf("disks %v: got %v after %v, want no error after %v",
						tt.disks, err, time.Since(started), want)
				}
			}
		})
	}
}

// A step does not miss disks whose drivers are still being loaded, although disks are not waited for.
func TestWaitDisksUntilDriversAreLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t)
		settled := make(chan struct{})
		m.o.Settled = settled
		m.o.Config.Update(func(c *config.Config) { c.DiskWaitAttempts = 0 })
		const loaded = 20 * time.Second
		time.AfterFunc(loaded, func() { close(settled) })
		started := time.Now()
		if err := m.WaitDisks(t.Context(), nil); err != nil || time.Since(started) != loaded {
			t.Errorf("got %v after %v, want no error after %v", err, time.Since(started), loaded)
		}
	})
}

// A wait for disks ends when its command is cancelled.
func TestWaitDisksCancelled(t *testing.T) {
	m := newManager(t)
	m.o.Config.Update(func(c *config.Config) { c.DiskWaitAttempts, c.DiskWaitDelay = 1, time.Hour })
	if err := os.MkdirAll(m.o.System.Sys("block"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := m.WaitDisks(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
