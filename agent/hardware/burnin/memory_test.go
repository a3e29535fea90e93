package burnin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

const meminfo = "MemTotal:         524288 kB\nMemFree:          100000 kB\nMemAvailable:     %d kB\n"

func memoryMachine(t *testing.T, availableMiB int) Machine {
	t.Helper()
	testenv.Linux(t, "processors")
	m, _ := machine(t, map[string]string{"proc/meminfo": fmt.Sprintf(meminfo, availableMiB<<10)})
	return m
}

func TestMemory(t *testing.T) {
	m := memoryMachine(t, 256)
	out := filepath.Join(t.TempDir(), "vm")
	const size = 6 << 20
	report, err := Memory(t.Context(), m, MemoryOptions{Workers: 3, Timeout: 1, Bytes: size, Output: out})
	if err != nil {
		t.Fatal(err)
	}
	if report.Workers != 3 || report.Available != 256<<20 || report.Bytes != size || report.Passes != 1 ||
		report.Verified != size*int64(len(patterns())) {
		t.Errorf("got report %+v, want one pass of %d bytes", report, size)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), "dispatching hogs: 3 vm") {
		t.Errorf("got output file %q and %v", text, err)
	}
}

// The counters of machine checks and of EDAC are reported before and after the test, whether or not they changed, and
// logged.
func TestMemoryCounters(t *testing.T) {
	testenv.Linux(t, "processors")
	m, log := machine(t, counterFiles)
	put(t, m, "proc/meminfo", fmt.Sprintf(meminfo, 256<<10))
	written := func([]uint64) { put(t, m, "sys/devices/system/edac/mc/mc0/ce_count", "3\n") }
	report, err := testMemory(t.Context(), m, MemoryOptions{Workers: 1, Timeout: 1, Bytes: 1 << 20}, written)
	if err != nil {
		t.Fatal(err)
	}
	const module = "mc0/dimm1 (CPU_SrcID#0_Ha#0_Chan#1_DIMM#0) "
	want := Counters{
		Changed: map[string]Change{"mc0 ce_count": {1, 3}},
		Errors: map[string]Change{
			"mc0 ce_count": {1, 3}, "mc0 ue_count": {0, 0},
			module + "dimm_ce_count": {1, 1}, module + "dimm_ue_count": {0, 0},
			"machine check exceptions": {0, 0}, "threshold interrupts (corrected errors)": {7, 7},
		},
	}
	if diff := cmp.Diff(want, report.Counters); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	for name := range want.Errors {
		if !strings.Contains(log.String(), name) {
			t.Errorf("the log lacks %q:\n%s", name, log)
		}
	}
}

// The number of counters in a report is limited. Counters of modules are omitted first.
func TestMemoryCountersLimit(t *testing.T) {
	values := map[string]uint64{"mc0 ce_count": 5, "mc9 ue_count": 0}
	for i := range 2 * maxCounters {
		values[fmt.Sprintf("mc0/dimm%d (slot) dimm_ce_count", i)] = 1
	}
	var c Counters
	after := sample{memoryErrors: values, machineChecks: {machineCheckExceptions: 2}}
	c.addErrors(sample{memoryErrors: {"mc0 ce_count": 4}}, after)
	if len(c.Errors) != maxCounters || c.Omitted != maxCounters+3 {
		t.Errorf("got %d counters and %d omitted, want %d and %d", len(c.Errors), c.Omitted, maxCounters, maxCounters+3)
	}
	for name, want := range map[string]Change{
		"mc0 ce_count": {4, 5}, "mc9 ue_count": {0, 0}, machineCheckExceptions: {0, 2},
	} {
		if got, reported := c.Errors[name]; !reported || got != want {
			t.Errorf("%s: got %v, reported %v, want %v", name, got, reported, want)
		}
	}
}

// The memory that the agent needs stays free: the rest of a percentage is not tested, and too large a size is an error.
func TestMemoryPlan(t *testing.T) {
	for _, test := range []struct {
		available int // MiB
		o         MemoryOptions
		want      int64
		err       string
	}{
		{300, MemoryOptions{Percent: 50}, 150 << 20, ""},
		{300, MemoryOptions{Percent: 98}, 236 << 20, ""},
		{300, MemoryOptions{Percent: 100}, 236 << 20, ""},
		{300, MemoryOptions{Percent: 1e-9}, int64(os.Getpagesize()), ""},
		{300, MemoryOptions{Bytes: 236 << 20}, 236 << 20, ""},
		{300, MemoryOptions{Bytes: 1}, int64(os.Getpagesize()), ""},
		{300, MemoryOptions{Bytes: 236<<20 + 1}, 0, "not enough memory to test 247463937 bytes: 314572800 are "},
		{64, MemoryOptions{Percent: 98}, 0, "no memory to test: 67108864 bytes are available"},
	} {
		test0 := &memoryTest{Machine: memoryMachine(t, test.available)}
		got, err := test0.plan(&MemoryReport{}, test.o)
		if got != test.want || (err != nil) != (test.err != "") ||
			err != nil && !strings.HasPrefix(err.Error(), test.err) {
			t.Errorf("%d MiB, %+v: got %d and %v, want %d and %q",
				test.available, test.o, got, err, test.want, test.err)
		}
	}
	m := memoryMachine(t, 300)
	put(t, m, "proc/meminfo", "MemTotal:    209715200 kB\nMemAvailable:    104857600 kB\n")
	test := &memoryTest{Machine: m}
	if got, err := test.plan(&MemoryReport{}, MemoryOptions{Percent: 100}); err != nil || got != 98<<30 {
		t.Errorf("got %d and %v, want 100 GiB without 1 %% of 200 GiB", got, err)
	}
	for _, text := range []string{"", "MemTotal: x kB\n", "MemTotal: 5 kB\n"} {
		put(t, m, "proc/meminfo", text)
		if _, err := Memory(t.Context(), m, MemoryOptions{Timeout: 1, Percent: 1}); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

// A flipped bit is an error with the addresses and the bit. The test ends although time is left.
func TestMemoryFlippedBit(t *testing.T) {
	m := memoryMachine(t, 256)
	page := uint64(os.Getpagesize())
	flips := 0
	var address uint64
	written := func(words []uint64) {
		if flips++; flips != 12 {
			return
		}
		words[777] ^= 1<<5 | 1<<63 // in the second pass, with the second pattern
		address = addressOf(words[777:])
		var entry [8]byte
		binary.NativeEndian.PutUint64(entry[:], 1<<63|0x1234)
		path := filepath.Join(m.System.Path, "proc/self/pagemap")
		put(t, m, "proc/self/pagemap", "")
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(entry[:], int64(address/page*8))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	report, err := testMemory(t.Context(), m, MemoryOptions{Workers: 1, Timeout: time.Hour, Bytes: 1 << 20}, written)
	want := fmt.Sprintf("1 words of memory were wrong: physical address %#x, virtual address %#x: bits 5, 63: "+
		"got 0x7fffffffffffffdf, want 0xffffffffffffffff (inverted zeros)", 0x1234*page+address%page, address)
	if err == nil || err.Error() != want {
		t.Errorf("got error %v\nwant %s", err, want)
	}
	if report.Passes != 2 || flips != 2*len(patterns()) {
		t.Errorf("got %d passes and %d patterns, want the whole second pass", report.Passes, flips)
	}
}

// A page that the kernel has unmapped, as it does after an uncorrected error, is an error with its address. The process
// continues.
func TestMemoryFault(t *testing.T) {
	m := memoryMachine(t, 256)
	empty, err := os.Create(filepath.Join(t.TempDir(), "empty"))
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close() //nolint:errcheck // of a test
	var address uint64
	written := func(words []uint64) {
		page := unsafe.Pointer(&words[os.Getpagesize()/wordBytes])
		address = uint64(uintptr(page))
		_, err := unix.MmapPtr(int(empty.Fd()), 0, page, uintptr(os.Getpagesize()),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			t.Error(err)
		}
	}
	report, err := testMemory(t.Context(), m, MemoryOptions{Workers: 1, Timeout: time.Hour, Bytes: 1 << 20}, written)
	want := fmt.Sprintf("memory at virtual address %#x cannot be accessed: see the kernel's log for its error", address)
	if err == nil || err.Error() != want || report.Passes != 0 {
		t.Errorf("got %+v and %v, want %q", report, err, want)
	}
}

// Of many errors, the first are listed and all are counted. Without a page map the physical address is not known.
func TestMemoryManyErrors(t *testing.T) {
	m := memoryMachine(t, 256)
	written := func(words []uint64) {
		for i := range 10 {
			words[i]++
		}
	}
	_, err := testMemory(t.Context(), m, MemoryOptions{Workers: 1, Timeout: 1, Bytes: 1 << 20}, written)
	if err == nil || !strings.HasPrefix(err.Error(), "100 words of memory were wrong: virtual address 0x") ||
		!strings.HasSuffix(err.Error(), "; and 84 more") || strings.Count(err.Error(), "virtual") != maxListed {
		t.Errorf("got error %v, want %d of 100 words", err, maxListed)
	}
}

// If less memory is available than planned, less is tested, in smaller regions, and the report says so.
func TestMemoryShrinks(t *testing.T) {
	const reserve = minReserve - 1<<19 // half a MiB is available in addition
	w := &memoryWorker{memoryTest: &memoryTest{Machine: memoryMachine(t, minReserve>>20), reserve: reserve}}
	words, err := w.allocate(1 << 20)
	if words != nil || err != nil {
		t.Errorf("got %d words and %v, want none", len(words), err)
	}
	if err := w.work(t.Context(), 3<<20); err == nil || w.passes != 0 || w.tested != 0 {
		t.Errorf("got %d passes, %d bytes and %v, want an error", w.passes, w.tested, err)
	}
	w = &memoryWorker{memoryTest: &memoryTest{Machine: memoryMachine(t, minReserve>>20), reserve: minReserve - 9<<20}}
	w.deadline = time.Now().Add(time.Hour)
	var sizes []int
	w.written = func(words []uint64) {
		if sizes = append(sizes, len(words)*wordBytes>>20); len(sizes) == 3 {
			w.deadline = time.Now()
		}
	}
	err = w.work(t.Context(), 20<<20)
	if diff := cmp.Diff([]int{8, 8, 4, 8}, sizes); diff != "" || err != nil || w.passes != 0 || w.tested != 20<<20 {
		t.Errorf("got %d passes of %d bytes and %v, regions in MiB (-want +got):\n%s", w.passes, w.tested, err, diff)
	}
}

// regionsOf returns regions of memory that a worker can free.
func regionsOf(t *testing.T, n, bytes int) [][]uint64 {
	t.Helper()
	m := &memoryTest{Machine: memoryMachine(t, 256)}
	var all [][]uint64
	for range n {
		words, err := m.allocate(int64(bytes))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, words)
	}
	return all
}

// When the time is over, what was written is verified. Only that counts as tested.
func TestMemoryTimeIsOver(t *testing.T) {
	w := &memoryWorker{
		memoryTest: &memoryTest{Machine: memoryMachine(t, 256), deadline: time.Now()}, regions: regionsOf(t, 2, 64<<10),
	}
	defer w.freeRegion() //nolint:errcheck // of a test
	defer w.freeRegion() //nolint:errcheck // of a test
	verified, complete, err := w.test(t.Context(), patterns()[1])
	if complete || verified != 64<<10 || w.verified.Load() != 64<<10 || err != nil {
		t.Errorf("got %d verified bytes (complete: %v) and %v, want those of the first region", verified, complete, err)
	}
	m := memoryMachine(t, 1024)
	report, err := Memory(t.Context(), m, MemoryOptions{Workers: 1, Timeout: 1, Bytes: 3 * regionBytes})
	if err != nil || report.Passes != 0 || report.Bytes != regionBytes || report.Verified != regionBytes {
		t.Errorf("got %+v and %v, want one region with one pattern", report, err)
	}
}

// If the agent and the kernel need more memory during a test, regions are freed until they have it. The others are
// tested.
func TestMemoryRelieved(t *testing.T) {
	m := memoryMachine(t, 256)
	available := func(mib int) {
		put(t, m, "proc/meminfo", fmt.Sprintf(meminfo, mib<<10))
	}
	for pattern := range 2 {
		calls := 0
		w := &memoryWorker{
			memoryTest: &memoryTest{Machine: m, reserve: minReserve, deadline: time.Now().Add(time.Hour)},
			regions:    regionsOf(t, 3, 64<<10),
		}
		w.written = func([]uint64) {
			switch calls++; calls {
			case 3*pattern + 1:
				available(31)
			case 3*pattern + 2:
				available(32)
			}
		}
		available(256)
		for _, p := range patterns() {
			if _, complete, err := w.test(t.Context(), p); !complete || err != nil {
				t.Errorf("low in pattern %d: got complete %v and %v", pattern, complete, err)
			}
		}
		if len(w.regions) != 2 {
			t.Errorf("low in pattern %d: got %d regions, want 2", pattern, len(w.regions))
		}
		for len(w.regions) > 0 {
			if err := w.freeRegion(); err != nil {
				t.Error(err)
			}
		}
	}
	available(256)
	lost := func([]uint64) { available(1) }
	_, err := testMemory(t.Context(), m, MemoryOptions{Workers: 2, Timeout: time.Hour, Bytes: 1 << 20}, lost)
	if err == nil || !strings.Contains(err.Error(), "no memory is available any more") {
		t.Errorf("got error %v, want one: all memory was freed", err)
	}
	available(256)
	broken := func([]uint64) { put(t, m, "proc/meminfo", "") }
	_, err = testMemory(t.Context(), m, MemoryOptions{Workers: 1, Timeout: time.Hour, Bytes: 1 << 20}, broken)
	if err == nil || !strings.Contains(err.Error(), "MemTotal missing") {
		t.Errorf("got error %v, want one: how much memory is available is not known", err)
	}
}

func TestMemoryCancelled(t *testing.T) {
	m := memoryMachine(t, 256)
	aborted := errors.New("aborted")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := testMemory(ctx, m, MemoryOptions{Timeout: time.Hour, Bytes: 1 << 20}, func([]uint64) { cancel(aborted) })
	if !errors.Is(err, aborted) {
		t.Errorf("got error %v, want %v", err, aborted)
	}
}

// Every bit is tested with both values.
func TestPatterns(t *testing.T) {
	ones, zeros := uint64(0), ^uint64(0)
	for _, p := range patterns() {
		ones |= p.word(12345)
		zeros &= p.word(12345)
	}
	if ones != ^uint64(0) || zeros != 0 {
		t.Errorf("bits that were 1: %x, bits that were always 1: %x", ones, zeros)
	}
}

func TestBitList(t *testing.T) {
	for x, want := range map[uint64]string{
		1: "0", 1 << 63: "63", 1<<5 | 1<<7: "5, 7", 0x3c | 1<<62 | 1<<63: "2-5, 62-63", ^uint64(0): "0-63",
	} {
		if got := bitList(x); got != want {
			t.Errorf("%x: got %q, want %q", x, got, want)
		}
	}
}
