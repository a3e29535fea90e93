package burnin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
)

// CPUReport describes a test of the processors.
type CPUReport struct {
	Processors int     `json:"processors"` // different ones that were tested
	Workers    int     `json:"workers"`
	Offline    string  `json:"offline,omitempty"` // list of the kernel: processors that were not tested
	Seconds    float64 `json:"seconds"`
	// Computations is the number of those whose results were verified.
	Computations int64    `json:"computations"`
	Counters     Counters `json:"counters"`
}

// cpuTest is one run of CPU.
type cpuTest struct {
	Machine
	computations []computation
	deadline     time.Time
	verified     atomic.Int64
	failed       atomic.Bool
	ticker       ticker
	started      time.Time
}

// CPU computes on the processors, one worker for each or as many as the options say, until the time is over, and
// compares every result with the known one. A wrong result ends the test: the error names each processor that has
// computed one. It also returns an error if the hardware reported uncorrected errors. If it throttled, the report says
// so.
func CPU(ctx context.Context, m Machine, o CPUOptions) (*CPUReport, error) {
	return testCPU(ctx, m, o, computations)
}

func testCPU(ctx context.Context, m Machine, o CPUOptions, list []computation) (*CPUReport, error) {
	out, err := openOutput(o.Output)
	if err != nil {
		return nil, err
	}
	t := &cpuTest{Machine: m, computations: list, started: time.Now()}
	t.deadline = t.started.Add(o.Timeout)
	t.ticker.last = t.started
	report, err := t.run(ctx, o.Workers)
	return report, errors.Join(err, out.finish(summary("cpu", report.Workers, report.Computations, t.started, err)))
}

func (t *cpuTest) run(ctx context.Context, workers int) (*CPUReport, error) {
	report := &CPUReport{}
	processors, err := online()
	if err != nil {
		return report, fmt.Errorf("list processors: %w", err)
	}
	report.Workers = workers
	if workers == 0 {
		report.Workers = len(processors)
	}
	if err := t.checkWorkers(report.Workers, len(processors)); err != nil {
		return report, err
	}
	report.Processors = min(report.Workers, len(processors))
	if text, err := t.System.Files.Read(t.System.Sys("devices/system/cpu/offline")); err == nil {
		report.Offline = strings.TrimSpace(string(text))
	}
	if report.Offline != "" {
		t.Log.Warn("processors are offline and not tested", "processors", report.Offline)
	}
	before := readCounters(t.System)
	t.Log.Info("testing processors", "processors", report.Processors, "workers", report.Workers,
		"duration", time.Until(t.deadline).Round(time.Second))
	errs := t.workers(ctx, report.Workers, processors)
	report.Seconds = seconds(time.Since(t.started))
	report.Computations = t.verified.Load()
	report.Counters = t.counterChanges(before)
	if err := ctx.Err(); err != nil {
		return report, context.Cause(ctx)
	}
	err = errors.Join(joined(errs), report.Counters.err())
	if err == nil {
		t.Log.Info("processors tested", "processors", report.Processors, "computations", report.Computations)
	}
	return report, err
}

// workers runs workers until the time is over, in turn on the processors of a list. It returns an error or nil for
// each.
func (t *cpuTest) workers(ctx context.Context, count int, processors []int) []error {
	errs := make([]error, count)
	calls := make([]func(), count)
	for i := range calls {
		calls[i] = func() {
			errs[i] = goroutine.Catch(func() error { return t.work(ctx, processors[i%len(processors)]) })
			if errs[i] != nil {
				t.failed.Store(true)
			}
		}
	}
	goroutine.Do(calls...)
	return errs
}

// workerBytes is the memory that a worker needs: its workspace, the stacks and the kernel's part of a thread.
const workerBytes = 2 * workspaceBytes

// checkWorkers returns an error if the memory does not suffice for more workers than processors. Without memory or
// threads the runtime would end the process.
func (t *cpuTest) checkWorkers(workers, processors int) error {
	if workers <= processors {
		return nil
	}
	total, available, err := memoryInfo(t.System)
	if err != nil {
		return err
	}
	reserve := reserveOf(total)
	if limit := max(0, available-reserve) / workerBytes; int64(workers) > limit {
		return fmt.Errorf("not enough memory for %d workers, want at most %d: "+
			"%d bytes are available, %d of them are left to the agent", workers, limit, available, reserve)
	}
	return nil
}

// work computes on one processor until the time is over or a worker has failed.
func (t *cpuTest) work(ctx context.Context, processor int) error {
	release, err := pin(processor)
	if err != nil {
		return fmt.Errorf("processor %d: %w", processor, err)
	}
	defer release()
	space := newWorkspace()
	for first := true; first || time.Now().Before(t.deadline); first = false {
		for _, c := range t.computations {
			if ctx.Err() != nil || t.failed.Load() && !first {
				return nil // the caller reports the reason
			}
			if got := c.run(space); got != c.want {
				t.Log.Error("wrong result of a computation", "processor", processor, "computation", c.name,
					slog.String("got", got), slog.String("want", c.want))
				return fmt.Errorf("processor %d computed a wrong result: %s: got %s, want %s",
					processor, c.name, got, c.want)
			}
			t.verified.Add(1)
		}
		t.ticker.tick(func() {
			t.Log.Info("testing processors", "elapsed", time.Since(t.started).Round(time.Second),
				"left", time.Until(t.deadline).Round(time.Second), "computations", t.verified.Load())
		})
	}
	return nil
}
