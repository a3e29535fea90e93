package extension

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/hardware"
)

// syncer is a hardware manager whose sync is a function.
type syncer func(context.Context) error

func (syncer) Class() string                          { return "SyncManager" }
func (syncer) Name() string                           { return "sync" }
func (syncer) Version() string                        { return "1" }
func (syncer) Support(context.Context) hardware.Level { return hardware.ServiceProvider }
func (s syncer) Sync(ctx context.Context) error       { return s(ctx) }

// A sync that does not end fails after its time limit, and does not prevent the machine from stopping.
func TestSyncLimit(t *testing.T) {
	var sync syncer
	var last atomic.Pointer[context.Context] // a manager that ignores its context can run longer than the command
	r := newRig(t, syncer(func(ctx context.Context) error {
		last.Store(&ctx)
		return sync(ctx)
	}))
	for _, c := range []struct {
		name   string
		sync   syncer
		took   time.Duration // of the command sync
		err    string        // of the command sync, "" for none
		before time.Duration // time until the machine stops
		warned string        // text of the warning
	}{
		{
			name: "slow", sync: func(ctx context.Context) error {
				select {
				case <-time.After(9 * time.Minute):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			},
			took: 9 * time.Minute, before: time.Minute, warned: "no progress for 1m0s",
		},
		{
			name: "ends with its context", sync: func(ctx context.Context) error {
				<-ctx.Done()
				return errors.Join(errors.New("hanging"), context.Cause(ctx))
			},
			took: 10 * time.Minute, err: "no progress for 10m0s: hanging\nno progress for 10m0s",
			before: time.Minute, warned: `no progress for 1m0s: hanging\nno progress for 1m0s`,
		},
		{
			name: "ignores its context", sync: func(context.Context) error {
				time.Sleep(time.Hour)
				return nil
			},
			took:   10*time.Minute + time.Second,
			err:    "hardware managers: sync: still busy in the kernel: no progress for 10m0s",
			before: time.Minute + time.Second,
			warned: "hardware managers: sync: still busy in the kernel: no progress for 1m0s",
		},
		{
			name: "late error", sync: func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second / 2)
				return errors.New("late")
			},
			took: 10*time.Minute + time.Second/2, err: "no progress for 10m0s: late",
			before: time.Minute + time.Second/2, warned: "no progress for 1m0s: late",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sync = c.sync
				started := time.Now()
				result, err := find(t, standby(r.deps), "sync").Call(t.Context(), nil)
				took := time.Since(started)
				got := ""
				if err != nil {
					got = err.Error()
				}
				if (*last.Load()).Err() == nil {
					t.Error("sync: the context did not end with the command")
				}
				if result != nil || got != c.err || took != c.took {
					t.Errorf("sync: got %v, error %q after %v, want error %q after %v",
						result, got, took, c.err, c.took)
				}
				var log strings.Builder
				machine := &stopped{}
				deps := r.deps
				deps.Power, deps.Log = machine, slog.New(slog.NewTextHandler(&log, nil))
				started = time.Now()
				_, err = find(t, standby(deps), "run_image").Call(t.Context(), nil)
				took = time.Since(started)
				if err != nil || machine.reboots != 1 || took != c.before {
					t.Errorf("run_image: got %v and %d restarts after %v, want one after %v",
						err, machine.reboots, took, c.before)
				}
				time.Sleep(time.Hour) // until the managers have returned
				const warning = `msg="disks not synced" before=reboot`
				if text := log.String(); !strings.Contains(text, warning) || !strings.Contains(text, c.warned) {
					t.Errorf("got log %s, want a warning with %q", text, c.warned)
				}
			})
		})
	}
}
