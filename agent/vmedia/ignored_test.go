package vmedia

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/removable"
	"ironroot/storage/sysfs"
)

// awaitWarnings waits until no search for ignored disks runs.
func (m *Media) awaitWarnings(t *testing.T) {
	t.Helper()
	select {
	case m.ignored.running <- struct{}{}:
		<-m.ignored.running
	case <-limited(t).Done():
		t.Fatal("the search for ignored disks did not end")
	}
}

// A disk that looks like a medium but lacks its flags is logged once, with the reason. Other USB disks are not. Load
// and Again search anew.
func TestIgnoredMediaWarning(t *testing.T) {
	m := newMachine(t)
	fixed := func(name, model, label string) {
		m.attach(name, usb, "0", model, floppy(t, label, "parameters.txt", "a=b"), mib)
		m.write("sys/class/block/"+name+"/removable", "0")
	}
	var log bytes.Buffer
	o := m.options(cmdline)
	o.limit = readable
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	media := New(o)
	media.pending = true
	check := func(when string, want map[string]int) {
		t.Helper()
		media.awaitWarnings(t)
		for path, want := range want {
			got := strings.Count(log.String(), `neither removable nor write-protected" device=`+path+" ")
			if got != want {
				t.Errorf("%s: %s is named %d times, want %d:\n%s", when, path, got, want, log.String())
			}
		}
	}
	fixed("sda", "Stick", "ir-vfd-dev")
	fixed("sdb", "Virtual Media", "OTHER")
	fixed("sdc", "Stick", "OTHER")
	if params, err := media.Load(limited(t)); err != nil || params["a"] != "" {
		t.Fatalf("got %v and %v, want no parameters of a disk", params, err)
	}
	check("Load", map[string]int{"/dev/sda": 1, "/dev/sdb": 1, "/dev/sdc": 0})
	fixed("sdd", "Stick", "ir-vfd-dev")
	if params, err := media.Again(limited(t)); err != nil || params["a"] != "" {
		t.Fatalf("got %v and %v, want no parameters of a disk", params, err)
	}
	check("Again", map[string]int{"/dev/sda": 1, "/dev/sdb": 1, "/dev/sdc": 0, "/dev/sdd": 1})
}

// Neither Load nor Again waits for an ignored disk that does not answer, and Again starts no second search.
func TestIgnoredDiskHangs(t *testing.T) {
	var log bytes.Buffer
	searches, answer := make(chan bool, 2), make(chan removable.IgnoredDisk)
	o := newMachine(t).options(cmdline)
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	o.drives = ignoring{ignoredDisks: func() ([]removable.IgnoredDisk, error) {
		searches <- true
		return []removable.IgnoredDisk{<-answer}, nil
	}}
	media := New(o)
	media.pending = true
	type result struct {
		params config.Params
		err    error
	}
	results := make(chan result, 2)
	goroutine.Go(func() error {
		for _, read := range []func(context.Context) (config.Params, error){media.Load, media.Again} {
			params, err := read(limited(t))
			results <- result{params, err}
		}
		return nil
	}, nil)
	for _, when := range []string{"Load", "Again"} {
		select {
		case r := <-results:
			if r.err != nil || r.params["ipa-api-url"] != "http://cmdline" {
				t.Errorf("%s: got %v, %v, want the parameters of the command line", when, r.params, r.err)
			}
		case <-limited(t).Done():
			t.Fatalf("%s waits for the disk", when)
		}
	}
	answer <- removable.IgnoredDisk{Device: block.Device{Path: "/dev/sda"}, Label: "ir-vfd-dev"}
	media.awaitWarnings(t)
	if len(searches) != 1 {
		t.Errorf("got %d searches, want 1", len(searches))
	}
	if !strings.Contains(log.String(), "neither removable nor write-protected") {
		t.Errorf("the disk is not named:\n%s", log.String())
	}
}

// A panic during the search for ignored disks ends that search only.
func TestIgnoredDisksPanic(t *testing.T) {
	testenv.ExpectPanics(t)
	o := newMachine(t).options(cmdline)
	searches := 0
	o.drives = ignoring{ignoredDisks: func() ([]removable.IgnoredDisk, error) {
		searches++
		panic("in a file system")
	}}
	media := New(o)
	for range 2 {
		if _, err := media.Load(limited(t)); err != nil {
			t.Errorf("got error %v, want none", err)
		}
		media.awaitWarnings(t)
	}
	if searches != 2 {
		t.Errorf("got %d searches, want 2", searches)
	}
}

// ignoring implements drives with another function that lists ignored disks.
type ignoring struct {
	removableDrives
	ignoredDisks func() ([]removable.IgnoredDisk, error)
}

func (i ignoring) ignored(context.Context, sysfs.Root) ([]removable.IgnoredDisk, error) {
	return i.ignoredDisks()
}
