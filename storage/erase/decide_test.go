package erase

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// try calls an erase with options that have a recorder, and returns the text of the report, "" if nothing was erased.
func try(o Options, erase func(Options) error) (Technique, error) {
	if o.Recorder == nil {
		o.Recorder = &Recorder{}
	}
	err := erase(o)
	report := o.Recorder.Report()
	if report.Technique == "" {
		return "", err
	}
	return Technique(report.String()), err
}

func tryRun(ctx context.Context, sys sysfs.Root, d block.Device, o Options) (Technique, error) {
	return try(o, func(o Options) error { return Run(ctx, sys, d, o) })
}

func tryRunWith(
	ctx context.Context, sys sysfs.Root, d block.Device, o Options, open openers,
) (Technique, error) {
	return try(o, func(o Options) error { return run(ctx, sys, d, o, open) })
}

func tryExpress(
	ctx context.Context, sys sysfs.Root, d block.Device, wait Wait, notFormatted func(error),
) (Technique, error) {
	return try(Options{Wait: wait}, func(o Options) error { return Express(ctx, sys, d, o, notFormatted) })
}

func tryExpressWith(
	ctx context.Context, sys sysfs.Root, d block.Device, o Options, notFormatted func(error),
	open func(string) (adminDevice, error),
) (Technique, error) {
	return try(o, func(o Options) error { return express(ctx, sys, d, o, notFormatted, open) })
}

func tryRanges(
	ctx context.Context, sys sysfs.Root, d block.Device, ranges [][2]int64, o Options,
) (Technique, error) {
	return try(o, func(o Options) error { return Ranges(ctx, sys, d, ranges, o) })
}

// observe is an [Observer] that calls a function.
type observe func(p Progress)

func (o observe) Observe(p Progress) { o(p) }

// onProgress returns a recorder that calls progress with the bytes that are written or sanitized.
func onProgress(progress func(done, total int64)) *Recorder {
	return &Recorder{Observer: observe(func(p Progress) {
		if p.Phase == Overwriting || p.Phase == Sanitizing {
			progress(p.Done, p.Total)
		}
	})}
}

// onReadBack returns a recorder that calls progress with the bytes that are read back.
func onReadBack(progress func(done, total int64)) *Recorder {
	return &Recorder{Observer: observe(func(p Progress) {
		if p.Phase == ReadingBack {
			progress(p.Done, p.Total)
		}
	})}
}

// decidedRun decides, then calls run, and compares them: a decision changes nothing, and is the report of run unless a
// command failed, or one of the errors that run returns before it erases.
func decidedRun(
	ctx context.Context, t *testing.T, sys sysfs.Root, d block.Device, o Options, open openers,
) (Technique, error) {
	t.Helper()
	if open.identify == nil {
		open.identify = open.nvme
	}
	before := testenv.Content(t, d.Path)
	decided, readOnly := o, open
	decided.Recorder, decided.decideOnly, readOnly.nvme = nil, true, open.identify
	expected, decideErr := tryRunWith(t.Context(), sys, d, decided, readOnly)
	if !bytes.Equal(testenv.Content(t, d.Path), before) {
		t.Error("the decision changed the medium")
	}
	method, err := tryRunWith(ctx, sys, d, o, open)
	fellBack := o.ContinueOnFailure && method == Overwrite || strings.Contains(string(method), "failed")
	switch {
	case decideErr == nil && err == nil && expected != method && !fellBack:
		t.Errorf("decision: got %q, run used %q", expected, method)
	case decideErr != nil && err == nil && !errors.Is(decideErr, ErrLocked) && !errors.Is(decideErr, errRejects):
		t.Errorf("decision: got error %v, run succeeded with %q", decideErr, method)
	}
	for _, early := range []error{ErrReadOnly, ErrZoned, ErrRemains, ErrTCGLocked} {
		if errors.Is(err, early) && !errors.Is(decideErr, early) {
			t.Errorf("decision: got error %v (method %q), run returned %v", decideErr, expected, err)
		}
	}
	return method, err
}
