package burnin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// machine returns a machine with the files, and its log.
func machine(t *testing.T, files map[string]string) (Machine, *bytes.Buffer) {
	t.Helper()
	m := Machine{System: sysfs.Root{Path: t.TempDir()}}
	for name, text := range files {
		put(t, m, name, text)
	}
	var log bytes.Buffer
	m.Log = slog.New(slog.NewTextHandler(&log, nil))
	return m, &log
}

func put(t *testing.T, m Machine, name, text string) {
	t.Helper()
	path := filepath.Join(m.System.Path, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}

// The known results were computed by other programs: Python's integers, fractions and hashlib, and openssl.
func TestComputations(t *testing.T) {
	space := newWorkspace()
	for range 2 { // the second time in used memory
		for _, c := range computations {
			if got := c.run(space); got != c.want {
				t.Errorf("%s: got %s, want %s", c.name, got, c.want)
			}
		}
	}
}

func TestCPU(t *testing.T) {
	testenv.Linux(t, "affinity")
	m, log := machine(t, map[string]string{"sys/devices/system/cpu/offline": "2-3\n"})
	out := filepath.Join(t.TempDir(), "log", "cpu")
	processors, err := online()
	if err != nil {
		t.Fatal(err)
	}
	report, err := CPU(t.Context(), m, CPUOptions{Timeout: time.Millisecond, Output: out})
	if err != nil {
		t.Fatal(err)
	}
	if report.Processors != len(processors) || report.Workers != len(processors) || report.Offline != "2-3" ||
		report.Computations < int64(len(processors)*len(computations)) || report.Seconds <= 0 {
		t.Errorf("got report %+v, want all computations on %d processors", report, len(processors))
	}
	if diff := cmp.Diff([]string{machineChecks, memoryErrors, throttling}, report.Counters.Unavailable); diff != "" {
		t.Errorf("unavailable counters (-want +got):\n%s", diff)
	}
	if !strings.Contains(log.String(), "processors are offline and not tested") {
		t.Errorf("the log does not name the processors that are offline:\n%s", log)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), "successful run completed in") ||
		strings.Contains(string(text), "unsuccessful") {
		t.Errorf("got output file %q and %v", text, err)
	}
}

// Every worker runs on its own processor, and several share one if there are more of them.
func TestCPUWorkers(t *testing.T) {
	m := memoryMachine(t, 256)
	processors, err := online()
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]atomic.Int32, 1024)
	where := computation{"place", func(*workspace) string {
		now, err := online() // of the calling thread
		if err != nil || len(now) != 1 {
			return fmt.Sprintf("%v %v", now, err)
		}
		seen[now[0]].Add(1)
		return "one"
	}, "one"}
	workers := 2*len(processors) + 1
	report, err := testCPU(t.Context(), m, CPUOptions{Workers: workers, Timeout: time.Nanosecond}, []computation{where})
	if err != nil || report.Workers != workers || report.Processors != len(processors) {
		t.Errorf("got %+v and %v, want %d workers", report, err, workers)
	}
	for i, p := range processors {
		want := int32(2)
		if i == 0 {
			want = 3
		}
		if got := seen[p].Load(); got != want {
			t.Errorf("processor %d: got %d computations, want %d", p, got, want)
		}
	}
	if now, err := online(); err != nil || len(now) != len(processors) {
		t.Errorf("after the test: processors %v and %v, want all %d", now, err, len(processors))
	}
}

// Workers for which the memory does not suffice are an error before the test begins.
func TestCPUTooManyWorkers(t *testing.T) {
	list := []computation{{"none", func(*workspace) string { t.Error("a test has begun"); return "" }, ""}}
	m := memoryMachine(t, 264)
	_, err := testCPU(t.Context(), m, CPUOptions{Workers: 8192, Timeout: 1}, list)
	if want := "not enough memory for 8192 workers, want at most 100: 276824064 bytes are available"; err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
	m, _ = machine(t, nil)
	if _, err := testCPU(t.Context(), m, CPUOptions{Workers: 8192, Timeout: 1}, list); err == nil {
		t.Error("got no error although the available memory is not known")
	}
}

// A wrong result ends the test. The error names the processor and both values, and the output file has it too.
func TestCPUWrongResult(t *testing.T) {
	testenv.Linux(t, "affinity")
	m, log := machine(t, nil)
	out := filepath.Join(t.TempDir(), "cpu")
	processors, err := online()
	if err != nil {
		t.Fatal(err)
	}
	bad := processors[len(processors)-1]
	var rounds atomic.Int32
	list := []computation{computations[0], {"sum", func(*workspace) string {
		if now, err := online(); err == nil && now[0] == bad && rounds.Add(1) == 2 {
			return "5"
		}
		return "4"
	}, "4"}}
	_, err = testCPU(t.Context(), m, CPUOptions{Timeout: time.Hour, Output: out}, list)
	want := fmt.Sprintf("processor %d computed a wrong result: sum: got 5, want 4", bad)
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	if !strings.Contains(log.String(), "wrong result of a computation") || strings.Contains(log.String(), "tested") {
		t.Errorf("got log\n%s", log)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), want) || !strings.Contains(string(text), "unsuccessful run") {
		t.Errorf("got output file %q and %v", text, err)
	}
}

// All processors compute at least once, so that the error names each that is broken. A panic is an error too.
func TestCPUAllWrong(t *testing.T) {
	testenv.ExpectPanics(t)
	testenv.Linux(t, "affinity")
	m, _ := machine(t, nil)
	list := []computation{{"sum", func(*workspace) string { return "5" }, "4"}}
	_, err := testCPU(t.Context(), m, CPUOptions{Timeout: time.Hour}, list)
	processors, _ := online()
	for _, p := range processors {
		if want := fmt.Sprintf("processor %d computed", p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	list[0].run = func(*workspace) string { panic("oops") }
	if _, err := testCPU(t.Context(), m, CPUOptions{Timeout: time.Hour}, list); err == nil ||
		!strings.Contains(err.Error(), "oops") {
		t.Errorf("got error %v, want the panic", err)
	}
}

func TestCPUCancelled(t *testing.T) {
	testenv.Linux(t, "affinity")
	m, _ := machine(t, nil)
	aborted := errors.New("aborted")
	ctx, cancel := context.WithCancelCause(t.Context())
	list := []computation{{"cancel", func(*workspace) string { cancel(aborted); return "" }, ""}}
	if _, err := testCPU(ctx, m, CPUOptions{Timeout: time.Hour}, list); !errors.Is(err, aborted) {
		t.Errorf("got error %v, want %v", err, aborted)
	}
}

// counterFiles are counters as Linux has them on x86 and with an EDAC driver.
var counterFiles = map[string]string{
	"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count":    "7\n",
	"sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "0\n",
	"sys/devices/system/edac/mc/mc0/ce_count":                             "1\n",
	"sys/devices/system/edac/mc/mc0/ue_count":                             "0\n",
	"sys/devices/system/edac/mc/mc0/dimm1/dimm_label":                     "CPU_SrcID#0_Ha#0_Chan#1_DIMM#0\n",
	"sys/devices/system/edac/mc/mc0/dimm1/dimm_ce_count":                  "1\n",
	"sys/devices/system/edac/mc/mc0/dimm1/dimm_ue_count":                  "0\n",
	"proc/interrupts": "            CPU0       CPU1       \n" +
		"   0:         41          0   IO-APIC    2-edge      timer\n" +
		" MCE:          0          0   Machine check exceptions\n" +
		" THR:          3          4   Threshold APIC interrupts\n TRM:  1  1   Thermal event interrupts\n",
}

// Throttling and corrected errors are reported. Uncorrected errors fail the test.
func TestCounters(t *testing.T) {
	testenv.Linux(t, "affinity")
	for name, test := range map[string]struct {
		after map[string]string
		want  map[string]Change
		err   string
	}{
		"nothing": {},
		"corrected": {map[string]string{
			"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "9\n",
			"sys/devices/system/edac/mc/mc0/ce_count":                          "3\n",
			"sys/devices/system/edac/mc/mc0/dimm1/dimm_ce_count":               "3\n",
			"proc/interrupts": " MCE:  0  0  Machine check exceptions\n THR:  3  5  Threshold\n TRM:  3  1  Thermal\n",
		}, map[string]Change{
			"cpu0 core_throttle_count": {7, 9},
			"mc0 ce_count":             {1, 3},
			"mc0/dimm1 (CPU_SrcID#0_Ha#0_Chan#1_DIMM#0) dimm_ce_count": {1, 3},
			"threshold interrupts (corrected errors)":                  {7, 8},
			"thermal event interrupts":                                 {2, 4},
		}, ""},
		"uncorrected": {map[string]string{
			"sys/devices/system/edac/mc/mc0/ue_count":            "1\n",
			"sys/devices/system/edac/mc/mc0/dimm1/dimm_ue_count": "1\n",
		}, map[string]Change{
			"mc0 ue_count": {0, 1}, "mc0/dimm1 (CPU_SrcID#0_Ha#0_Chan#1_DIMM#0) dimm_ue_count": {0, 1},
		}, "uncorrected errors: mc0 ue_count rose from 0 to 1, mc0/dimm1 (CPU_SrcID#0_Ha#0_Chan#1_DIMM#0) " +
			"dimm_ue_count rose from 0 to 1"},
		"machine check": {
			map[string]string{"proc/interrupts": " MCE:  0  2  Machine\n THR: 7 0 Threshold\n TRM: 2 0 x\n"},
			map[string]Change{"machine check exceptions": {0, 2}},
			"machine check exceptions rose from 0 to 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, log := machine(t, counterFiles)
			list := []computation{{"load", func(*workspace) string {
				for name, text := range test.after {
					put(t, m, name, text)
				}
				return ""
			}, ""}}
			report, err := testCPU(t.Context(), m, CPUOptions{Workers: 1, Timeout: time.Nanosecond}, list)
			if (err != nil) != (test.err != "") || err != nil && !strings.HasSuffix(err.Error(), test.err) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(Counters{Changed: test.want}, report.Counters); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			for counter := range test.want {
				if !strings.Contains(log.String(), counter) {
					t.Errorf("the log lacks %q:\n%s", counter, log)
				}
			}
		})
	}
}

// A file that cannot be written is an error before the test begins.
func TestOutputErrors(t *testing.T) {
	testenv.Linux(t, "files of the kernel")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, _ := machine(t, nil)
	for link, target := range map[string]string{"dir": "/proc/self", "link": "/proc/self/comm"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		dir: "not a regular file", filepath.Join(dir, "file", "x"): "not a directory",
		"/dev/null":                     "/dev/null is a file of the kernel",
		"/proc/self/comm":               "/proc/self/comm is a file of the kernel",
		filepath.Join(dir, "dir/comm"):  "/comm is a file of the kernel",
		filepath.Join(dir, "dir/x/new"): "/x/new is a file of the kernel",
		filepath.Join(dir, "link"):      "/comm is a file of the kernel",
	} {
		list := []computation{{"none", func(*workspace) string { t.Error("a test has begun"); return "" }, ""}}
		_, err := testCPU(t.Context(), m, CPUOptions{Timeout: 1, Output: path}, list)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", path, err, want)
		}
		if _, err := NewDiskResults(DiskOptions{Output: path}); err == nil {
			t.Errorf("%s: got no error for disks", path)
		}
		if _, err := Memory(t.Context(), m, MemoryOptions{Timeout: 1, Output: path}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v for memory, want %q", path, err, want)
		}
	}
}
