package cleaning

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/status"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// Each phase of an erase has its own line, also if the disk is overwritten after the drive has not erased itself.
func TestErasePhases(t *testing.T) {
	events := eraseEvents(t,
		erase.Progress{Phase: erase.SelfErasing, Estimate: time.Hour},
		erase.Progress{Phase: erase.SelfErasing, Elapsed: 15*time.Minute + 1, Estimate: time.Hour},
		erase.Progress{Phase: erase.SelfErasing, Elapsed: time.Hour, Estimate: time.Hour},
		erase.Progress{Phase: erase.SelfErasing, Elapsed: 2 * time.Hour, Estimate: time.Hour},
		erase.Progress{Phase: erase.SelfErasing, Elapsed: time.Minute},
		erase.Progress{Phase: erase.ReadingBack, Done: 1, Total: 4},
		erase.Progress{Phase: erase.Sanitizing, Done: 3, Total: 4})
	want := []string{
		"erasing disk /dev/sda", "end",
		"drive erasing itself /dev/sda",
		"0s of about 1h0m0s, the drive's estimate: 0.0 %",
		"15m0s of about 1h0m0s, the drive's estimate: 25.0 %",
		"1h0m0s of about 1h0m0s, the drive's estimate: 99.0 %",
		"2h0m0s, longer than the drive's estimate of 1h0m0s: 99.0 %",
		"1m0s, the drive gives no estimate", "end",
		"reading disk back /dev/sda", "1 of 4", "end",
		"erasing disk /dev/sda", "3 of 4", "end",
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The log has percentage and time left by the drive's estimate, about each minute, and says if there is none.
func TestEraseLogsEstimate(t *testing.T) {
	for estimate, want := range map[time.Duration][]string{
		2 * time.Hour: {
			`msg="drive started to erase itself" device=/dev/sda method=ata-secure-erase left=2h0m0s`,
			`msg="drive erasing itself" device=/dev/sda phase="1h0m0s of about 2h0m0s, the drive's estimate" ` +
				`percent=50 left=1h0m0s`,
		},
		0: {
			`msg="drive started to erase itself" device=/dev/sda method=ata-secure-erase` + "\n",
			`msg="drive erasing itself" device=/dev/sda phase="1h0m0s, the drive gives no estimate"` + "\n",
		},
	} {
		m := newMachine(t)
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		board := status.NewBoard("1", nil)
		m.o.Board = board
		fake(m).erase = func(_ context.Context, _ block.Device, o erase.Options) error {
			for elapsed := time.Duration(0); elapsed <= time.Hour; elapsed += time.Minute {
				o.Recorder.Observer.Observe(erase.Progress{
					Phase: erase.SelfErasing, Technique: erase.ATAErase, Elapsed: elapsed, Estimate: estimate,
				})
				time.Sleep(time.Minute) // by the clock of the test
			}
			return nil
		}
		synctest.Test(t, func(t *testing.T) {
			r := &diskRun{m: m}
			if err := r.eraseFully(t.Context(), block.Device{Path: "/dev/sda"}, nil, &erase.Recorder{}); err != nil {
				t.Error(err)
			}
		})
		for _, line := range want {
			if !strings.Contains(log.String(), line) {
				t.Errorf("estimate %v: got log\n%s\nwant %q", estimate, &log, line)
			}
		}
		if count := strings.Count(log.String(), `msg="drive erasing itself"`); count < 59 || count > 61 {
			t.Errorf("estimate %v: got %d lines in an hour, want one each minute", estimate, count)
		}
	}
}
