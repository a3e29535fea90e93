package burnin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// MemoryReport describes a test of the memory.
type MemoryReport struct {
	Workers   int   `json:"workers"`
	Available int64 `json:"available"` // bytes that were free before the test
	// Bytes is the size of the memory that was tested with all patterns, or with at least one if Passes is 0.
	Bytes    int64 `json:"bytes"`
	Verified int64 `json:"verified"` // bytes that were read and verified, over all patterns and passes
	// Passes is the number of times that memory was written and verified with all patterns. 0 means that the time was
	// over before.
	Passes   int64    `json:"passes"`
	Seconds  float64  `json:"seconds"`
	Counters Counters `json:"counters"`
}

const (
	// Tested memory is allocated in regions of this size. If less is available, they are halved down to the minimum.
	regionBytes, minRegionBytes = int64(64 << 20), 1 << 20
	wordBytes                   = 8
)

// pattern is content of memory: the word at an address, which is counted in words.
type pattern struct {
	name string
	word func(address uint64) uint64
}

// patterns has each with its inverse, so that every bit is tested with both values, and with neighbours of both
// values.
func patterns() []pattern {
	plain := []pattern{
		{"zeros", func(uint64) uint64 { return 0 }},
		{"alternating bits", func(uint64) uint64 { return 0x5555555555555555 }},
		{"walking bit", func(a uint64) uint64 { return 1 << (a % 64) }},
		{"address", func(a uint64) uint64 { return a }},
		{"random", mix},
	}
	var all []pattern
	for _, p := range plain {
		all = append(all, p, pattern{"inverted " + p.name, func(a uint64) uint64 { return ^p.word(a) }})
	}
	return all
}

// memoryTest is one run of Memory.
type memoryTest struct {
	Machine
	reserve  int64
	deadline time.Time
	started  time.Time
	ticker   ticker
	written  func(words []uint64) // a test changes what was written; may be nil

	mu       sync.Mutex
	failures []string
	failed   int // number of failures

	untouched atomic.Int64 // bytes of regions that are allocated but not in use yet; increased with mu locked
	verified  atomic.Int64
	broken    atomic.Bool // memory has failed: workers end after their pass
}

// memoryWorker is one of the workers of a test. Each has its own memory.
type memoryWorker struct {
	*memoryTest
	regions [][]uint64
	passes  int64
	tested  int64 // bytes, see MemoryReport.Bytes
}

// Memory writes patterns to free memory, as much as the options say, and verifies them, until the time is over. It
// leaves the agent and the kernel what they need, and frees tested memory if they need more later. Errors name the
// address of each wrong word and its wrong bits, and addresses that cannot be accessed. If there are some, the test
// ends when all other memory was tested with all patterns once more. It also returns an error if the hardware reported
// uncorrected errors; corrected errors are in the report.
func Memory(ctx context.Context, m Machine, o MemoryOptions) (*MemoryReport, error) {
	return testMemory(ctx, m, o, nil)
}

func testMemory(ctx context.Context, m Machine, o MemoryOptions, written func([]uint64)) (*MemoryReport, error) {
	out, err := openOutput(o.Output)
	if err != nil {
		return nil, err
	}
	t := &memoryTest{Machine: m, written: written, started: time.Now()}
	t.deadline = t.started.Add(o.Timeout)
	t.ticker.last = t.started
	report, err := t.run(ctx, o)
	text := summary("vm", report.Workers, report.Verified/wordBytes, t.started, err)
	return report, errors.Join(err, out.finish(text))
}

func (t *memoryTest) run(ctx context.Context, o MemoryOptions) (*MemoryReport, error) {
	report := &MemoryReport{Workers: o.Workers}
	if report.Workers == 0 {
		processors, err := online()
		if err != nil {
			return report, fmt.Errorf("list processors: %w", err)
		}
		report.Workers = len(processors)
	}
	want, err := t.plan(report, o)
	if err != nil {
		return report, err
	}
	// A worker tests at least a page.
	report.Workers = int(min(int64(report.Workers), want/int64(os.Getpagesize())))
	before := readCounters(t.System)
	t.Log.Info("testing memory", "bytes", want, "available", report.Available, "workers", report.Workers,
		"duration", time.Until(t.deadline).Round(time.Second))
	errs := make([]error, report.Workers)
	workers := make([]memoryWorker, report.Workers)
	calls := make([]func(), report.Workers)
	for i := range calls {
		workers[i].memoryTest = t
		calls[i] = func() {
			errs[i] = goroutine.Catch(func() error { return workers[i].work(ctx, want/int64(report.Workers)) })
		}
	}
	goroutine.Do(calls...)
	report.Seconds = seconds(time.Since(t.started))
	report.Verified, report.Passes = t.verified.Load(), workers[0].passes
	for i := range workers {
		report.Bytes += workers[i].tested
		report.Passes = min(report.Passes, workers[i].passes)
	}
	report.Counters = t.errorCounters(before)
	if ctx.Err() != nil {
		return report, context.Cause(ctx)
	}
	if t.failed > 0 {
		errs = append(errs, fmt.Errorf("%d words of memory were wrong: %s", t.failed, listed(t.failures, t.failed)))
	}
	if report.Passes == 0 {
		t.Log.Warn("time was over before all memory was tested with all patterns")
	}
	t.Log.Info("memory tested", "bytes", report.Bytes, "verified", report.Verified, "passes", report.Passes,
		"failures", t.failed)
	return report, errors.Join(joined(errs), report.Counters.err())
}

// plan returns how many bytes to test.
func (t *memoryTest) plan(report *MemoryReport, o MemoryOptions) (int64, error) {
	total, available, err := memoryInfo(t.System)
	if err != nil {
		return 0, err
	}
	report.Available = available
	t.reserve = reserveOf(total)
	limit := available - t.reserve
	if limit < int64(os.Getpagesize()) {
		return 0, fmt.Errorf("no memory to test: %d bytes are available, %d of them are left to the agent",
			available, t.reserve)
	}
	if o.Percent == 0 {
		if o.Bytes > limit {
			return 0, fmt.Errorf("not enough memory to test %d bytes: "+
				"%d are available, %d of them are left to the agent", o.Bytes, available, t.reserve)
		}
		return max(o.Bytes, int64(os.Getpagesize())), nil
	}
	want := int64(float64(available) * o.Percent / 100)
	return max(min(want, limit), int64(os.Getpagesize())), nil
}

// work allocates memory and tests it.
func (w *memoryWorker) work(ctx context.Context, bytes int64) (err error) {
	defer func() {
		for len(w.regions) > 0 {
			err = errors.Join(err, w.freeRegion())
		}
	}()
	// The kernel unmaps a page with an uncorrected error. An access to it would end the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch value := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			w.broken.Store(true)
			err = fmt.Errorf("memory at virtual address %#x cannot be accessed: see the kernel's log for its error",
				value.Addr())
			w.Log.Error("memory failed", "err", err)
		default:
			panic(value)
		}
	}()
	if err := w.allocateAll(ctx, bytes); err != nil {
		return err
	}
	for ctx.Err() == nil {
		complete, err := w.pass(ctx)
		if err != nil || !complete || w.broken.Load() || !time.Now().Before(w.deadline) {
			return err
		}
	}
	return nil
}

// allocateAll allocates regions, as many bytes as are available.
func (w *memoryWorker) allocateAll(ctx context.Context, bytes int64) error {
	size := regionBytes
	for left := bytes; left >= int64(os.Getpagesize()) && ctx.Err() == nil; {
		words, err := w.allocate(min(left, size))
		if err != nil {
			return err
		}
		if words == nil {
			if size /= 2; size >= minRegionBytes {
				continue
			}
			w.Log.Warn("less memory is available than at the beginning, the rest is not tested", "bytes", left)
			break
		}
		w.regions = append(w.regions, words)
		left -= int64(len(words)) * wordBytes
	}
	return nil
}

// pass tests all regions with all patterns. If the time is over before, it is not complete.
func (w *memoryWorker) pass(ctx context.Context) (complete bool, err error) {
	for _, p := range patterns() {
		verified, complete, err := w.test(ctx, p)
		if w.passes == 0 {
			w.tested = max(w.tested, verified)
		}
		if err != nil || !complete {
			return false, err
		}
		if len(w.regions) == 0 {
			return false, errors.New("no memory is available any more")
		}
	}
	w.passes++
	w.tested = 0
	for _, words := range w.regions {
		w.tested += int64(len(words)) * wordBytes
	}
	return true, nil
}

// freeRegion returns the last region to the kernel.
func (w *memoryWorker) freeRegion() error {
	last := len(w.regions) - 1
	words := w.regions[last]
	w.regions = w.regions[:last]
	return unix.Munmap(bytesOf(words))
}

// freeIfShort frees a region if the agent and the kernel have used half of what was left to them. Without memory the
// kernel would panic, because it must not end process 1.
func (w *memoryWorker) freeIfShort() error {
	w.mu.Lock() // so that one worker at a time frees memory
	defer w.mu.Unlock()
	_, available, err := memoryInfo(w.System)
	if err != nil || available >= w.reserve/2 || len(w.regions) == 0 {
		return err
	}
	bytes := int64(len(w.regions[len(w.regions)-1])) * wordBytes
	w.Log.Warn("memory freed during its test", "available", available, "bytes", bytes)
	return w.freeRegion()
}

// allocate returns a region of memory whose pages are in use. It returns nil if what is left to the agent would become
// too small.
func (t *memoryTest) allocate(bytes int64) ([]uint64, error) {
	page := int64(os.Getpagesize())
	bytes = bytes / page * page
	if enough, err := t.reserveBytes(bytes); err != nil || !enough {
		return nil, err
	}
	raw, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.untouched.Add(-bytes)
		return nil, fmt.Errorf("allocate %d bytes: %w", bytes, err)
	}
	for i := int64(0); i < bytes; i += page {
		raw[i] = 1 // a page that is only read is one of zeros that all processes share
		t.untouched.Add(-page)
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(raw))), bytes/wordBytes), nil
}

// reserveBytes counts bytes as untouched if so much memory is available in addition to what is left to the agent.
func (t *memoryTest) reserveBytes(bytes int64) (enough bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, available, err := memoryInfo(t.System)
	if err != nil || available-t.untouched.Load()-bytes < t.reserve {
		return false, err
	}
	t.untouched.Add(bytes)
	return true, nil
}

func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*wordBytes)
}

// test writes a pattern to all regions and verifies it. It returns the number of verified bytes. If the time is over,
// it verifies the regions that were written, and is not complete.
func (w *memoryWorker) test(ctx context.Context, p pattern) (verified int64, complete bool, err error) {
	written := 0
	for ; written < len(w.regions); written++ {
		if written > 0 && !time.Now().Before(w.deadline) {
			break
		}
		words := w.regions[written]
		base := addressOf(words) / wordBytes
		for i := range words {
			words[i] = p.word(base + uint64(i))
		}
		if w.written != nil {
			w.written(words)
		}
		if err := w.freeIfShort(); err != nil || ctx.Err() != nil {
			return 0, false, err
		}
	}
	complete = written >= len(w.regions)
	for i := 0; i < min(written, len(w.regions)); i++ {
		words := w.regions[i]
		base := addressOf(words) / wordBytes
		for j, got := range words {
			if want := p.word(base + uint64(j)); got != want {
				w.fail(p, addressOf(words)+uint64(j)*wordBytes, got, want)
			}
		}
		verified += int64(len(words)) * wordBytes
		total := w.verified.Add(int64(len(words)) * wordBytes)
		w.ticker.tick(func() {
			w.Log.Info("testing memory", "elapsed", time.Since(w.started).Round(time.Second),
				"left", time.Until(w.deadline).Round(time.Second), "verified", total)
		})
		if err := w.freeIfShort(); err != nil || ctx.Err() != nil {
			return verified, false, err
		}
	}
	return verified, complete, nil
}

func addressOf(words []uint64) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(words))))
}

// fail records a word that is wrong.
func (t *memoryTest) fail(p pattern, address, got, want uint64) {
	t.broken.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed++; t.failed > maxListed {
		return
	}
	place := fmt.Sprintf("virtual address %#x", address)
	if physical, ok := physicalAddress(t.System, address); ok {
		place = fmt.Sprintf("physical address %#x, %s", physical, place)
	}
	text := fmt.Sprintf("%s: bits %s: got %#016x, want %#016x (%s)", place, bitList(got^want), got, want, p.name)
	t.failures = append(t.failures, text)
	t.Log.Error("memory returned a wrong value", "place", place, "bits", bitList(got^want), "pattern", p.name)
}

// bitList lists the bits that are set, from 0, the lowest one, as "3, 17-20".
func bitList(x uint64) string {
	var ranges []string
	for first := 0; first < 64; first++ {
		last := first
		for last < 64 && x>>last&1 == 1 {
			last++
		}
		switch last - first {
		case 0:
			continue
		case 1:
			ranges = append(ranges, strconv.Itoa(first))
		default:
			ranges = append(ranges, fmt.Sprintf("%d-%d", first, last-1))
		}
		first = last
	}
	return strings.Join(ranges, ", ")
}
