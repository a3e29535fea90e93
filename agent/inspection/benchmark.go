package inspection

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ironroot/agent/hardware/burnin"
	"ironroot/agent/inventory"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
)

// benchmarkTimes are the durations of single measurements.
type benchmarkTimes struct {
	compute, memory, disk, warmup time.Duration
	disks                         time.Duration // limits the time of all disks together, without warming up
}

var defaultTimes = benchmarkTimes{
	compute: 5 * time.Second, memory: time.Second, disk: 5 * time.Second, warmup: time.Second, disks: 5 * time.Minute,
}

// memoryBlocks are the sizes of blocks that hardware-detect measures, by the names in its facts.
var memoryBlocks = []struct {
	name  string
	bytes int64
}{
	{"1K", 1 << 10},
	{"4K", 4 << 10},
	{"1M", 1 << 20},
	{"16M", 16 << 20},
	{"128M", 128 << 20},
	{"1G", 1 << 30},
	{"2G", 2 << 30},
}

// maxReadAhead limits the buffers of all disks together, in bytes.
const maxReadAhead = 64 << 20

// benchmark is one run of the benchmarks that ipa-inspection-benchmarks requests.
type benchmark struct {
	machine    burnin.Machine
	facts      *factList
	times      benchmarkTimes
	processors []int // all that are online
	sockets    []int // the first processor of each
	disks      []inventory.Disk
	plan       []measurement
}

// measurement is one of the measurements of a benchmark. Its name is shown.
type measurement struct {
	name     string
	duration time.Duration
	work     interface {
		run(ctx context.Context, b *benchmark) error // adds the result to the facts
	}
}

// benchmarks adds the facts of the benchmarks in a list separated by commas: cpu, mem, disk. One that fails is an
// error, after all others have run.
func (i *inspection) benchmarks(ctx context.Context, facts *factList, inv *inventory.Inventory, list string) error {
	b := &benchmark{
		machine: burnin.Machine{System: i.System, Log: i.Log}, facts: facts, times: i.times, disks: inv.Disks,
	}
	if b.times == (benchmarkTimes{}) {
		b.times = defaultTimes
	}
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); name {
		case "cpu", "mem", "disk":
			wanted[name] = true
		default:
			return fmt.Errorf("ipa-inspection-benchmarks: got %q, want cpu, mem, disk", name)
		}
	}
	var err error
	if b.processors, err = burnin.Processors(); err != nil {
		return fmt.Errorf("benchmarks: list processors: %w", err)
	}
	b.sockets = i.firstOfSockets(b.processors)
	if wanted["cpu"] { // in the order of hardware-detect
		b.planCompute(i.text(i.System.Proc("cpuinfo")))
	}
	if wanted["mem"] {
		b.planMemory()
	}
	if wanted["disk"] {
		b.planDisks()
	}
	return b.run(ctx, i.Board.Track(i.Log, "running benchmarks", "machine"))
}

// run runs the measurements one after another.
func (b *benchmark) run(ctx context.Context, tracker status.Tracker) error {
	defer tracker.End()
	var total, done time.Duration
	for _, m := range b.plan {
		total += m.duration
	}
	b.machine.Log.Info("benchmarks started", "measurements", len(b.plan), "duration", total)
	var errs []error
	for _, m := range b.plan {
		percent := 100 * float64(done) / float64(total)
		tracker.SetPercent(m.name, &percent)
		started := time.Now()
		err := m.work.run(ctx, b)
		if ctx.Err() != nil {
			return fmt.Errorf("benchmark %s: %w", m.name, context.Cause(ctx))
		}
		if errors.Is(err, burnin.ErrMemory) { // as hardware-detect
			b.machine.Log.Info("benchmark skipped", "benchmark", m.name, "err", err)
		} else if err != nil {
			errs = append(errs, fmt.Errorf("benchmark %s: %w", m.name, err))
		}
		b.machine.Log.Debug("benchmark ended", "benchmark", m.name, "duration", time.Since(started))
		done += m.duration
	}
	return errors.Join(errs...)
}

// computing measures the speed of processors.
type computing struct {
	item       string // of the fact
	processors []int
}

func (c computing) run(ctx context.Context, b *benchmark) error {
	speed, err := b.machine.ComputeSpeed(ctx, c.processors, b.times.compute)
	if err == nil {
		b.facts.add("cpu", c.item, "loops_per_sec", strconv.FormatInt(int64(speed), 10))
	}
	return err
}

// writing measures the speed of writes from processors to memory.
type writing struct {
	item, property string // of the fact
	processors     []int
	bytes          int64 // of a block
	shared         bool  // one block for all
}

func (w writing) run(ctx context.Context, b *benchmark) error {
	speed, err := b.machine.MemorySpeed(ctx, w.processors, w.bytes, w.shared, b.times.memory)
	if err == nil { // MiB/s
		b.facts.add("cpu", w.item, w.property, strconv.FormatInt(int64(speed)>>20, 10))
	}
	return err
}

// reading measures the speed of reads from disks at the same time.
type reading struct {
	disks    []inventory.Disk
	property string // of the facts, without the unit
	pattern  burnin.ReadPattern
	duration time.Duration
}

func (r reading) run(ctx context.Context, b *benchmark) error {
	speeds, errs := make([]burnin.DiskSpeed, len(r.disks)), make([]error, len(r.disks))
	calls := make([]func(), len(r.disks))
	for n, d := range r.disks {
		calls[n] = func() {
			errs[n] = goroutine.Catch(func() (err error) {
				speeds[n], err = b.machine.DiskSpeed(ctx, d.Name, d.Size, r.pattern, b.times.warmup, r.duration)
				return err
			})
		}
	}
	goroutine.Do(calls...)
	for n, d := range r.disks {
		if errs[n] != nil {
			continue
		}
		name := strings.TrimPrefix(d.Name, "/dev/")
		b.facts.add("disk", name, r.property+"_KBps", strconv.FormatInt(int64(speeds[n].Bytes)>>10, 10))
		b.facts.add("disk", name, r.property+"_IOps", strconv.FormatFloat(speeds[n].Requests, 'f', 2, 64))
	}
	return errors.Join(errs...)
}

// planCompute plans a benchmark of one processor of each socket, and of all together.
func (b *benchmark) planCompute(cpuinfo string) {
	facts := parseProcessors([]byte(cpuinfo))
	add := func(item string, processors []int) {
		b.plan = append(b.plan, measurement{item + " loops_per_sec", b.times.compute, computing{item, processors}})
	}
	for _, n := range b.sockets {
		item := fmt.Sprintf("logical_%d", n)
		b.facts.add("cpu", item, "bogomips", facts[n]["bogomips"])
		b.facts.add("cpu", item, "cache_size", strings.ReplaceAll(facts[n]["cache size"], " ", ""))
		add(item, []int{n})
	}
	add("logical", b.processors)
}

// planMemory plans benchmarks of writes from one processor of each socket, from all to one block, and from each to a
// block of its own.
func (b *benchmark) planMemory() {
	add := func(item, property string, processors []int, shared bool) {
		for _, block := range memoryBlocks {
			w := writing{item, property + "_" + block.name, processors, block.bytes, shared}
			b.plan = append(b.plan, measurement{item + " " + w.property, b.times.memory, w})
		}
	}
	for _, n := range b.sockets {
		add(fmt.Sprintf("logical_%d", n), "bandwidth", []int{n}, false)
	}
	if len(b.processors) > 1 {
		add("logical", "threaded_bandwidth", b.processors, true)
		add("logical", "forked_bandwidth", b.processors, false)
	}
}

// planDisks plans benchmarks of reads from each disk, and from all together.
func (b *benchmark) planDisks() {
	if len(b.disks) == 0 {
		return
	}
	groups := make([][]inventory.Disk, 0, len(b.disks)+1)
	for _, d := range b.disks {
		groups = append(groups, []inventory.Disk{d})
	}
	if len(b.disks) > 1 {
		groups = append(groups, b.disks)
	}
	duration := min(b.times.disk, b.times.disks/time.Duration(2*len(groups)))
	for _, disks := range groups {
		mode, what := "standalone", disks[0].Name
		if len(disks) > 1 {
			mode, what = "simultaneous", "all disks"
		}
		const large, small = 1 << 20, 4 << 10
		add := func(name string, p burnin.ReadPattern) {
			r := reading{disks, mode + "_" + name, p, duration}
			b.plan = append(b.plan, measurement{what + " " + r.property, duration + b.times.warmup, r})
		}
		add("read_1M", burnin.ReadPattern{Bytes: large, AtATime: max(1, min(8, maxReadAhead/large/len(disks)))})
		add("randread_4k", burnin.ReadPattern{Random: true, Bytes: small, AtATime: 32})
	}
}

// firstOfSockets returns the first processor of each socket. Processors of an unknown socket count as one socket.
func (i *inspection) firstOfSockets(processors []int) (first []int) {
	known := map[string]bool{}
	for _, n := range processors {
		file := i.System.Sys("devices/system/cpu", fmt.Sprintf("cpu%d", n), "topology/physical_package_id")
		if socket := i.text(file); !known[socket] {
			known[socket] = true
			first = append(first, n)
		}
	}
	return first
}

// parseProcessors returns the fields of /proc/cpuinfo by the number of the processor.
func parseProcessors(cpuinfo []byte) map[int]map[string]string {
	all := map[int]map[string]string{}
	fields := map[string]string{} // those before the first processor are dropped
	scanner := bufio.NewScanner(bytes.NewReader(cpuinfo))
	scanner.Buffer(nil, len(cpuinfo)+1)
	for scanner.Scan() {
		key, value, _ := strings.Cut(scanner.Text(), ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if n, err := strconv.Atoi(value); key == "processor" && err == nil {
			fields = map[string]string{}
			all[n] = fields
		}
		fields[key] = value
	}
	return all
}
