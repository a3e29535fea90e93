//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot"
)

// passes are the kinds of passes by the name of their content.
var passes = map[string]erase.Options{"zeros": {Zeroize: true}, "random": {Iterations: 1}}

// overwrite overwrites disks in turn with dd and with one pass of an erase. The kernel parameter bench-overwrite names
// them with the content of the pass, as "vda:zeros,vdc:random". The order changes with each round. A line is
// "BENCH vda-dd SECONDS" or "BENCH vda-ironroot SECONDS".
func overwrite(ctx context.Context, m *boot.Machine, rounds int) error {
	for contest := range strings.SplitSeq(m.Params["bench-overwrite"], ",") {
		name, content, _ := strings.Cut(contest, ":")
		device, err := block.Find(sysfs.Root{}, name)
		if err != nil {
			return err
		}
		options, known := passes[content]
		if !known {
			return fmt.Errorf("bench-overwrite: content %q is unknown", content)
		}
		contestants := []func() error{
			func() error {
				return report(name+"-dd", func() (time.Duration, error) { return dd(ctx, device) })
			},
			func() error {
				return report(name+"-ironroot", func() (time.Duration, error) { return onePass(ctx, device, options) })
			},
		}
		for round := range rounds {
			for i := range contestants {
				if err := contestants[(round+i)%len(contestants)](); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func report(name string, work func() (time.Duration, error)) error {
	duration, err := work()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("BENCH %s %.3f\n", name, duration.Seconds())
	return nil
}

// onePass erases a device by one pass and returns the duration of the pass with its flush, without the read-back.
func onePass(ctx context.Context, device block.Device, o erase.Options) (time.Duration, error) {
	start := &firstWrite{}
	o.Recorder = &erase.Recorder{Observer: start}
	if err := erase.Run(ctx, sysfs.Root{}, device, o); err != nil {
		return 0, err
	}
	r := o.Recorder.Report()
	if r.String() != string(erase.Overwrite) || len(r.Passes) != 1 || r.Passes[0].Bytes != device.Size {
		return 0, fmt.Errorf("%s: got method %s with passes %v, want one pass of %d bytes",
			device.Path, r, r.Passes, device.Size)
	}
	return r.Passes[0].Ended.Sub(start.at), nil
}

// firstWrite observes when the first pass of an overwrite starts.
type firstWrite struct{ at time.Time }

// Observe implements [erase.Observer].
func (w *firstWrite) Observe(p erase.Progress) {
	if p.Phase == erase.Overwriting && p.Done == 0 {
		w.at = time.Now()
	}
}

// copied matches the last line of dd.
var copied = regexp.MustCompile(`(?m)^(\d+) bytes .* copied, ([0-9.]+) s,`)

// dd overwrites a device with zeros by Debian's dd, and returns the time that dd itself reports: the emulated machine
// needs time to start it.
func dd(ctx context.Context, device block.Device) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "/bin/dd", "if=/dev/zero", "of="+device.Path, "oflag=direct", "bs=4M",
		fmt.Sprintf("count=%d", device.Size>>22))
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: debian}
	cmd.Env, cmd.Dir = []string{"LC_ALL=C"}, "/"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("dd: %w: %s", err, &stderr)
	}
	groups := copied.FindStringSubmatch(stderr.String())
	if groups == nil || groups[1] != strconv.FormatInt(device.Size, 10) {
		return 0, fmt.Errorf("dd: got %q, want %d bytes copied", &stderr, device.Size)
	}
	return time.ParseDuration(groups[2] + "s")
}
