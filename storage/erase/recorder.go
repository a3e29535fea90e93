package erase

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/storage/erase/evidence"
)

// Recorder collects the [Report] of an erase while it runs. It is safe for concurrent use: if the kernel does not
// return from an erase (timelimit.ErrStuck), its report contains what is known until then. The zero value is ready to
// use, for one call of [Run], [Express], [Ranges], [Recover] or [RecordMetadata]: a second one fails before it does
// anything, whatever the result of the first was. Erased and Restrict add to that report. A nil Recorder collects
// nothing.
type Recorder struct {
	Observer Observer // receives the progress; may be nil

	mu     sync.Mutex
	device string // path of the device whose erase the report describes, "" before it has started
	report Report
}

// Observer receives the progress of an erase. Calls do not overlap, and end with the erase or its context. Most are on
// the goroutine of the erase.
type Observer interface {
	Observe(p Progress)
}

// Progress describes what an erase does now.
type Progress struct {
	Phase       Phase
	Technique   Technique     // of SanitizeStarted and SelfErasing
	Done, Total int64         // bytes of Overwriting, Sanitizing, ReadingBack and Discarding
	Elapsed     time.Duration // of SelfErasing
	Estimate    time.Duration // by the drive, of SanitizeStarted and SelfErasing; 0 if it gives none
}

// Phase is a part of an erase.
type Phase int

// The phases.
const (
	Overwriting     Phase = iota // Done bytes of all passes are written
	SanitizeStarted              // the drive has started to sanitize itself
	Sanitizing                   // the drive sanitizes itself and reports how much is done
	// SelfErasing means that the drive carries out a command that reports no progress. It is observed at the start of
	// the command, and then about once for each percent of the estimate, or each minute without one, on another
	// goroutine.
	SelfErasing
	ReadingBack // Done bytes are read back
	Discarding  // Done bytes are discarded
)

// Report returns what is known so far.
func (r *Recorder) Report() Report {
	if r == nil {
		return Report{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.report
	report.Passes, report.Reported = slices.Clone(report.Passes), slices.Clone(report.Reported)
	report.Restrictions = slices.Clone(report.Restrictions)
	return report
}

// start assigns the recorder to the erase of a device. It returns an error if the recorder has a report of an erase:
// the facts of two erases would be mixed.
func (r *Recorder) start(device string) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.device != "":
		return fmt.Errorf("recorder already used for %s", r.device)
	case r.report.Technique != "":
		return fmt.Errorf("recorder already used: technique %q", r.report.Technique)
	}
	r.device = device
	return nil
}

// Erased records that the device was erased by a technique.
func (r *Recorder) Erased(technique Technique) {
	r.change(func(report *Report) { report.Technique = technique })
}

// AddLimit adds a text that says which part of the device was erased, or how the rest was.
func (r *Recorder) AddLimit(text string) {
	r.change(func(report *Report) { report.Restrictions = append(report.Restrictions, text) })
}

// change calls do with the report.
func (r *Recorder) change(do func(*Report)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	do(&r.report)
}

// reported records a statement of the drive. completed means that it reported the end of the erase without an error.
func (r *Recorder) reported(source, text string, completed bool) {
	r.change(func(report *Report) {
		report.Reported = append(report.Reported, evidence.Statement{
			Time: time.Now().UTC(), Source: source, Text: text, Completed: completed,
		})
	})
}

// observe sends the progress to the observer.
func (r *Recorder) observe(p Progress) {
	if r.observed() {
		r.Observer.Observe(p)
	}
}

func (r *Recorder) observed() bool { return r != nil && r.Observer != nil }

// Limits of the interval between two observations of SelfErasing.
const (
	minErasingInterval = time.Second
	maxErasingInterval = time.Minute
)

// erasingInterval returns the time between two observations: a percent of the estimate, within the limits.
func erasingInterval(estimate time.Duration) time.Duration {
	if estimate <= 0 {
		return maxErasingInterval
	}
	return min(max(estimate/100, minErasingInterval), maxErasingInterval)
}

// during calls command, which returns when the drive has erased itself, and observes it until then. A panic of the
// observer during the command ends the observation; it is logged, and does not change the result. An observation does
// not extend the time limit of the command.
func (r *Recorder) during(
	ctx context.Context, technique Technique, estimate time.Duration, command func() error,
) error {
	if !r.observed() {
		return command()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	began := time.Now()
	p := Progress{Phase: SelfErasing, Technique: technique, Estimate: estimate}
	r.observe(p)
	goroutine.Go(func() error {
		for pause.For(ctx, erasingInterval(estimate)) == nil {
			p.Elapsed = time.Since(began)
			r.observe(p)
		}
		return nil
	}, func(error) { close(ended) }) // a panic was logged
	err := command()
	cancel()
	<-ended
	return err
}
