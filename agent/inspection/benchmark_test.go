package inspection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/hardware/burnin"
	"ironroot/agent/inventory"
	"ironroot/agent/inventory/machinetest"
	"ironroot/agent/status"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// shortTimes make benchmarks as short as possible.
var shortTimes = benchmarkTimes{compute: 1, memory: 1, disk: 1, disks: time.Second}

// usableMemory is the memory of the test's machine that benchmarks can use, in bytes.
const usableMemory = 24 << 20

// benchmarked runs the collector on a machine with disks and the memory of a small one. It returns the facts of
// benchmarks and the error of the data.
func benchmarked(t *testing.T, list string, disks ...block.Device) (facts map[string]string, failure string) {
	t.Helper()
	c := &config.Config{
		InspectionCollectors: "extra-hardware", Params: config.Params{"ipa-inspection-benchmarks": list},
	}
	m := newMachine(t, c)
	m.times = shortTimes
	const reserved = 64 << 20
	write(t, m.System, "proc/meminfo",
		fmt.Sprintf("MemTotal: 262144 kB\nMemAvailable: %d kB\n", (reserved+usableMemory)>>10))
	info := ""
	processors, err := burnin.Processors()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range processors {
		info += fmt.Sprintf("processor\t: %d\nmodel name\t: A processor\ncache size\t: %d KB\n"+
			"bogomips\t: 42%02d.10\n\n", n, 1024+n, n)
	}
	write(t, m.System, "proc/cpuinfo", info)
	m.Inventory = inventory.New(inventory.Options{
		System: m.System, Disks: disktest.List(disks),
		Config: m.Config,
	})
	_, err = Run(t.Context(), m.Options)
	failure = string(m.posted["error"])
	if (err == nil) != (failure == "null") {
		t.Errorf("got error %v, and %s in the data", err, failure)
	}
	var all [][4]any
	if err := json.Unmarshal(m.posted["data"], &all); err != nil {
		t.Fatal(err)
	}
	facts = map[string]string{}
	for _, f := range all {
		facts[fmt.Sprint(f[0], " ", f[1], " ", f[2])] = fmt.Sprint(f[3])
	}
	if facts["disk logical count"] != strconv.Itoa(len(disks)) {
		t.Errorf("got %v, want the other facts, too", all)
	}
	return facts, failure
}

// loop returns a disk of this machine.
func loop(t *testing.T, size int64) block.Device {
	t.Helper()
	return block.Device{Path: testenv.Loop(t, testenv.SparseFile(t, size), 512), Size: size}
}

// The facts have the names that hardware-detect gives them, and numbers. The disks are read only.
//
// Parity: H8
func TestExtraHardwareBenchmarks(t *testing.T) {
	testenv.Linux(t, "affinity")
	first, second := loop(t, 8<<20), loop(t, 4<<20)
	before := [][]byte{content(t, first), content(t, second)}
	facts, failure := benchmarked(t, "cpu,mem,disk", first, second)
	if failure != "null" {
		t.Errorf("got the error %s", failure)
	}
	processors, err := burnin.Processors()
	if err != nil {
		t.Fatal(err)
	}
	one := fmt.Sprintf("cpu logical_%d ", processors[0])
	if got := facts[one+"bogomips"]; got != fmt.Sprintf("42%02d.10", processors[0]) {
		t.Errorf("got bogomips %q", got)
	}
	if got := facts[one+"cache_size"]; got != fmt.Sprintf("%dKB", 1024+processors[0]) {
		t.Errorf("got cache size %q", got)
	}
	want := []string{one + "loops_per_sec", "cpu logical loops_per_sec"}
	groups := map[string]int64{one + "bandwidth_": 1} // and the number of blocks
	if len(processors) > 1 {
		groups["cpu logical threaded_bandwidth_"] = 1
		groups["cpu logical forked_bandwidth_"] = int64(len(processors))
	}
	for group, blocks := range groups {
		for _, size := range memoryBlocks {
			if blocks*size.bytes <= usableMemory {
				want = append(want, group+size.name)
			}
		}
	}
	for _, d := range []block.Device{first, second} {
		for _, property := range []string{
			"standalone_read_1M", "standalone_randread_4k", "simultaneous_read_1M",
			"simultaneous_randread_4k",
		} {
			name := "disk " + filepath.Base(d.Path) + " " + property
			want = append(want, name+"_KBps", name+"_IOps")
		}
	}
	for _, name := range want {
		n, err := strconv.ParseFloat(facts[name], 64)
		if err != nil || n < 0 || n == 0 && !strings.Contains(name, "1M_") {
			t.Errorf("%s: got %q, want a number", name, facts[name])
		}
	}
	for name := range facts {
		benchmark := strings.Contains(name, "_read_") || strings.Contains(name, "bandwidth") ||
			strings.Contains(name, "_randread_") || strings.Contains(name, "loops_per_sec")
		if benchmark && !slices.Contains(want, name) {
			t.Errorf("got %s = %s, which was not expected", name, facts[name])
		}
	}
	for i, d := range []block.Device{first, second} {
		if !bytes.Equal(before[i], content(t, d)) {
			t.Errorf("%s was written to", d.Path)
		}
	}
}

func content(t *testing.T, d block.Device) []byte {
	t.Helper()
	data, err := os.ReadFile(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Only the benchmarks of the list run. One disk has no simultaneous ones.
func TestBenchmarksOfList(t *testing.T) {
	testenv.Linux(t, "affinity")
	facts, failure := benchmarked(t, " disk ", loop(t, 2<<20))
	for name := range facts {
		if strings.Contains(name, "bandwidth") || strings.Contains(name, "loops") ||
			strings.Contains(name, "simultaneous") {
			t.Errorf("got %s", name)
		}
	}
	if failure != "null" || len(facts) == 0 {
		t.Errorf("got %v and the error %s", facts, failure)
	}
	if facts, _ := benchmarked(t, "cpu"); facts["cpu logical loops_per_sec"] == "" {
		t.Errorf("got %v, want the speed of processors", facts)
	}
}

// A benchmark that does not exist is an error, and none runs. A disk that cannot be read is an error that names it, and
// the others are measured.
func TestBenchmarkFailures(t *testing.T) {
	testenv.Linux(t, "affinity")
	const unknown = `collector extra-hardware failed: ipa-inspection-benchmarks: got \"gpu\", want cpu, mem, disk`
	facts, failure := benchmarked(t, "cpu,gpu")
	if !strings.Contains(failure, unknown) || facts["cpu logical loops_per_sec"] != "" {
		t.Errorf("got %v and the error %s, want %s", facts, failure, unknown)
	}
	good, gone := loop(t, 2<<20), block.Device{Path: filepath.Join(t.TempDir(), "gone"), Size: 2 << 20}
	facts, failure = benchmarked(t, "disk", gone, good)
	for _, want := range []string{
		"benchmark " + gone.Path + " standalone_read_1M: open " + gone.Path,
		"benchmark all disks simultaneous_randread_4k: ",
	} {
		if !strings.Contains(failure, want) {
			t.Errorf("got the error %s, want %q in it", failure, want)
		}
	}
	if name := "disk " + filepath.Base(good.Path) + " simultaneous_randread_4k_IOps"; facts[name] == "" {
		t.Errorf("got %v, want %s", facts, name)
	}
}

// recorder records what is shown. Its ended is closed at the end.
type recorder struct {
	status.Tracker
	shown []string
	ended chan struct{}
}

func (r *recorder) SetPercent(message string, percent *float64) {
	r.shown = append(r.shown, fmt.Sprintf("%s %.0f %%", message, *percent))
}
func (r *recorder) End() { close(r.ended) }

// The measurements are shown with their share of the whole time. A cancelled inspection ends with the one that runs.
func TestBenchmarkProgress(t *testing.T) {
	m := newMachine(t, &config.Config{})
	shown := &recorder{ended: make(chan struct{})}
	b := benchmark{machine: burnin.Machine{System: m.System, Log: m.Log}}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	var ran []string
	for _, name := range []string{"a", "b", "c", "d"} {
		b.plan = append(b.plan, measurement{name, time.Second, working(func(context.Context) error {
			ran = append(ran, name)
			switch name {
			case "a":
				return errors.New("of a")
			case "b":
				return fmt.Errorf("b: %w", burnin.ErrMemory)
			}
			return nil
		})})
	}
	if err := b.run(ctx, shown); err == nil || err.Error() != "benchmark a: of a" {
		t.Errorf("got %v, want the error of a only", err)
	}
	<-shown.ended
	if want := []string{"a 0 %", "b 25 %", "c 50 %", "d 75 %"}; !slices.Equal(shown.shown, want) {
		t.Errorf("got %q, want %q", shown.shown, want)
	}
	b.plan[1].work = working(func(ctx context.Context) error {
		cancel(stop)
		return ctx.Err()
	})
	ran = nil
	unseen := (*status.Board)(nil).Track(m.Log, "", "")
	if err := b.run(ctx, unseen); !errors.Is(err, stop) || !slices.Equal(ran, []string{"a"}) {
		t.Errorf("cancelled: got %v after %q, want %v after a and b", err, ran, stop)
	}
}

// The time of all benchmarks of disks is limited, and so are the buffers.
func TestBenchmarkPlan(t *testing.T) {
	b := benchmark{times: defaultTimes, sockets: []int{0, 8}, processors: []int{0, 1, 8, 9}, facts: &factList{}}
	total := func(plan func()) (sum time.Duration) {
		b.plan = nil
		plan()
		for _, m := range b.plan {
			sum += m.duration
		}
		return sum
	}
	if got := total(func() { b.planCompute("") }); got != 15*time.Second {
		t.Errorf("processors: got %v", got)
	}
	if got := total(b.planMemory); got != 28*time.Second {
		t.Errorf("memory: got %v", got)
	}
	for count, want := range map[int]time.Duration{
		0: 0, 1: 12 * time.Second, 2: 36 * time.Second, 99: 500 * time.Second,
	} {
		b.disks = make([]inventory.Disk, count)
		if got := total(b.planDisks); got != want {
			t.Errorf("%d disks: got %v, want %v", count, got, want)
		}
	}
}

// The first processor of each socket is measured, whatever the sockets' numbers are.
func TestFirstOfSockets(t *testing.T) {
	m := newMachine(t, &config.Config{})
	for n, socket := range []string{"3", "3", "1", "1", "3"} {
		machinetest.Write(t, m.System, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", n),
			socket+"\n")
	}
	i := &inspection{Options: m.Options}
	if got := i.firstOfSockets([]int{0, 1, 2, 3, 4}); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("got %v, want 0 and 2", got)
	}
	if got := i.firstOfSockets([]int{6, 7}); !slices.Equal(got, []int{6}) {
		t.Errorf("unknown socket: got %v, want 6", got)
	}
}

func FuzzProcessors(f *testing.F) {
	f.Add([]byte("processor\t: 0\nbogomips\t: 4200.00\n\nprocessor\t: 1\ncache size\t: 1024 KB\n"))
	f.Add([]byte("bogomips: 1\nprocessor: x\nprocessor: -1\n:\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for n, fields := range parseProcessors(data) {
			if fields["processor"] == "" {
				t.Errorf("processor %d: got fields %q", n, fields)
			}
		}
	})
}

// working is the work of a measurement.
type working func(ctx context.Context) error

func (w working) run(ctx context.Context, _ *benchmark) error { return w(ctx) }
