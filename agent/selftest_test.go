package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/inventory/machinetest"
	"ironroot/agent/journal"
	"ironroot/agent/selftest"
	"ironroot/agent/status"
	"ironroot/internal/test/testenv"
)

// A program writes a report without an agent. It is the one of this machine's files, with the adapters of the caller.
func TestSelfTest(t *testing.T) {
	o := Options{
		Config: &config.Config{}, System: machinetest.System(t, "dell-r640"),
		Board: status.NewBoard("1", nil),
	}
	report, err := SelfTest(t.Context(), o)
	if err != nil || !strings.HasPrefix(report.Machine.Product, "PowerEdge R640") ||
		report.Program != "ironroot "+Version {
		t.Errorf("got %+v and %v, want the report of a PowerEdge R640", report, err)
	}
}

// ended is a log that closes done when the self-test has ended.
type ended struct {
	testenv.Log
	once sync.Once
	done chan struct{}
}

func (e *ended) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "self-test ended problems=") {
		e.once.Do(func() { close(e.done) })
	}
	return e.Log.Write(p)
}

// With the option, the report is in the log and in the log archive, also without Ironic. It waits for the drivers.
func TestSelfTestAtStart(t *testing.T) {
	console := &ended{done: make(chan struct{})}
	settled := make(chan struct{})
	a := newAgent(Options{
		Config: &config.Config{Standalone: true, SelfTest: true}, Journal: journal.New(console, nil, 1<<20),
		System: machinetest.System(t, "dell-r640"), Machine: loading(settled),
	})
	t.Cleanup(a.close)
	if err := a.loadHardware(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(console.String(), "self-test") {
		t.Errorf("the self-test did not wait for the drivers:\n%s", console)
	}
	close(settled)
	<-console.done
	if !strings.Contains(console.String(), `self-test subject=machine text="Dell Inc. PowerEdge R640`) {
		t.Errorf("the report is not in the log:\n%s", console)
	}
	var report selftest.Report
	err := json.Unmarshal(archived(t, a, reportFile), &report)
	if err != nil || !strings.HasPrefix(report.Machine.Product, "PowerEdge R640") {
		t.Errorf("got report %+v (%v) in the log archive", report, err)
	}
}

// Without the option, there is no report.
func TestSelfTestNotRequested(t *testing.T) {
	a := newAgent(Options{Config: &config.Config{Standalone: true}, System: machinetest.System(t, "dell-r640")})
	t.Cleanup(a.close)
	if err := errors.Join(a.loadHardware(t.Context()), a.logSelfTest(t.Context())); err != nil {
		t.Fatal(err)
	}
	if report := archived(t, a, reportFile); report != nil {
		t.Errorf("got report %s, want none", report)
	}
}

// archived returns a file of the log archive, nil if there is none.
func archived(t *testing.T, a *agent, name string) []byte {
	t.Helper()
	packed, err := a.o.Journal.Archive(t.Context(), a.o.System)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for members := tar.NewReader(zipped); ; {
		header, err := members.Next()
		if err != nil {
			return nil
		}
		if header.Name == name {
			data, err := io.ReadAll(members)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
}
