package erase

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/scsi"
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

// fakeOpener opens fakes of devices.
type fakeOpener struct {
	openNVMe func(path string) (adminDevice, error)
	openSG   sgOpener
}

func (f fakeOpener) nvme(path string) (adminDevice, error) { return f.openNVMe(path) }

func (f fakeOpener) sg(path string) (scsi.Transport, *os.File, int64, error) { return f.openSG(path) }

// nvmeOpeners open fakes of NVMe namespaces.
func nvmeOpeners(open func(path string) (adminDevice, error)) openers {
	return openers{fakeOpener{openNVMe: open}, fakeOpener{openNVMe: open}}
}

// sgOpeners open fakes of ATA drives and SCSI disks.
func sgOpeners(open sgOpener) openers {
	return openers{fakeOpener{openSG: open}, fakeOpener{openSG: open}}
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
	return try(o, func(o Options) error { return express(ctx, sys, d, o, notFormatted, fakeOpener{openNVMe: open}) })
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
	before := testenv.Content(t, d.Path)
	decided := o
	decided.Recorder, decided.decideOnly = nil, true
	expected, decideErr := tryRunWith(t.Context(), sys, d, decided, openers{open.query, open.query})
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
