package status

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A writer that reports every 0.1 s for 100 s, with 1 % per second, causes a log line every 5 % and at most one
// change of the screen per second. When it stalls, there is one log line per minute.
func TestTracker(t *testing.T) { synctest.Test(t, testTracker) }

func testTracker(t *testing.T) {
	var out bytes.Buffer
	b := NewBoard("1", nil)
	tracker := b.Track(slog.New(slog.NewTextHandler(&out, nil)), "writing image", "/dev/sda")
	const mib = 1 << 20
	updates := 0
	for i := range 1000 {
		changed := b.Changed()
		time.Sleep(100 * time.Millisecond)
		tracker.SetPhase("transfer", 1, int64(i+1)*mib, 1000*mib)
		select {
		case <-changed:
			updates++
		default:
		}
	}
	if updates > 101 {
		t.Errorf("the screen changes %d times in 100 s, want 101 at most", updates)
	}
	lines := strings.Count(out.String(), "\n")
	if lines < 18 || lines > 20 {
		t.Errorf("got %d lines, want one each 5 %%:\n%s", lines, &out)
	}
	work := b.State().Work
	if len(work) != 1 || work[0].Rate < 9*mib || work[0].Rate > 11*mib {
		t.Errorf("got %+v, want 10 MiB/s", work)
	}
	if !strings.Contains(out.String(), "percent=50") || !strings.Contains(out.String(), "device=/dev/sda") ||
		!strings.Contains(out.String(), "left=") {
		t.Errorf("the lines lack something:\n%s", &out)
	}
	out.Reset()
	for range 1800 { // three minutes
		time.Sleep(100 * time.Millisecond)
		tracker.SetPhase("finish", 1, 1000*mib, 1000*mib)
	}
	if lines := strings.Count(out.String(), "\n"); lines < 2 || lines > 4 {
		t.Errorf("standing still: got %d lines in three minutes, want about three:\n%s", lines, &out)
	}
	tracker.SetPhase("transfer", 2, 0, 1000*mib)
	time.Sleep(time.Second)
	tracker.SetPhase("transfer", 2, 10*mib, 1000*mib)
	if p := b.State().Work[0]; p.Attempt != 2 || p.Rate < 9*mib || p.Rate > 11*mib {
		t.Errorf("another attempt: got %+v, want 10 MiB/s of it alone", p)
	}
	tracker.End()
	if work := b.State().Work; work != nil {
		t.Errorf("after the end: got %v, want none", work)
	}
}

// attributes stores the attributes of the latest log line.
type attributes struct {
	slog.Handler
	lines  int
	latest map[string]string
}

func (a *attributes) Enabled(context.Context, slog.Level) bool { return true }

func (a *attributes) Handle(_ context.Context, r slog.Record) error {
	a.lines++
	a.latest = map[string]string{}
	r.Attrs(func(attr slog.Attr) bool {
		a.latest[attr.Key] = attr.Value.String()
		return true
	})
	return nil
}

// Log lines contain the rate only if it is known, and the attempt only if it is not the first.
func TestProgressAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		var log attributes
		b := NewBoard("1", nil)
		tracker := b.Track(slog.New(&log), "writing image", "/dev/sda")
		if diff := cmp.Diff([]Progress{{What: "writing image", Device: "/dev/sda"}}, b.State().Work); diff != "" {
			t.Errorf("at the beginning (-want +got):\n%s", diff)
		}
		tracker.Set(20*mib, 0)
		if work := b.State().Work[0]; work.Rate != 0 || log.lines != 0 {
			t.Errorf("at once: got rate %d and %d log lines, want none", work.Rate, log.lines)
		}
		time.Sleep(2 * time.Second)
		tracker.Set(20*mib, 0)
		if got := b.State().Work[0].RateText(); got != "10.0 MiB/s" {
			t.Errorf("rate: got %s, want 10.0 MiB/s", got)
		}
		time.Sleep(time.Second)
		tracker.Set(70*mib, 0)
		if got := b.State().Work[0].RateText(); got != "20.0 MiB/s" {
			t.Errorf("rate after a second of 50 MiB/s: got %s, want 20.0 MiB/s", got)
		}
		time.Sleep(2 * time.Second)
		tracker.Set(110*mib, 0)
		want := map[string]string{"device": "/dev/sda", "MiB": "110", "rate": "20.0 MiB/s"}
		if diff := cmp.Diff(want, log.latest); diff != "" {
			t.Errorf("without a total (-want +got):\n%s", diff)
		}
		tracker.SetPhase("transfer", 2, 0, 1000*mib)
		time.Sleep(6 * time.Second)
		tracker.SetPhase("transfer", 2, 60*mib, 1000*mib)
		want = map[string]string{
			"device": "/dev/sda", "phase": "transfer", "percent": "6", "MiB": "60", "rate": "10.0 MiB/s",
			"left": "1m34s", "attempt": "2",
		}
		if diff := cmp.Diff(want, log.latest); diff != "" {
			t.Errorf("second attempt (-want +got):\n%s", diff)
		}
		if got := (&Progress{}).RateText(); got != "-" {
			t.Errorf("unknown rate: got %q, want -", got)
		}
	})
}

// The progress of work whose size is unknown has a percentage and a remaining time, but no bytes.
func TestPercent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log attributes
		b := NewBoard("1", hunter2)
		tracker := b.Track(slog.New(&log), "hardware manager", "acme")
		for _, tt := range []struct {
			message string
			percent float64
			want    map[string]string
			shown   string
		}{
			{"erase\nhunter2", 25, map[string]string{"percent": "25", "left": "1m0s"}, "erase ***"},
			{"write", 1e300, map[string]string{"percent": "100", "left": "0s"}, "write"},
		} {
			time.Sleep(20 * time.Second)
			log.lines, log.latest = 0, nil
			tracker.SetPercent(tt.message, &tt.percent)
			work := b.State().Work[0]
			percent, known := work.Percent()
			if work.Phase != tt.shown || !known || fmt.Sprint(percent) != tt.want["percent"] || work.RateText() != "-" {
				t.Errorf("got %+v, %d %%, rate %s, want %s, %s %%, rate -", work, percent, work.RateText(), tt.shown,
					tt.want["percent"])
			}
			tt.want["device"], tt.want["phase"] = "acme", tt.shown
			if diff := cmp.Diff(tt.want, log.latest); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
		}
		negative := -5.0
		for range 2 {
			time.Sleep(2 * time.Second)
			tracker.SetPercent("read", &negative)
		}
		work := b.State().Work[0]
		if percent, known := work.Percent(); percent != 0 || !known || work.Phase != "read" {
			t.Errorf("less than nothing: got %+v, want 0 %%", work)
		}
		time.Sleep(2 * time.Second)
		tracker.SetPercent("wait", nil)
		work = b.State().Work[0]
		if _, known := work.Percent(); known || work.Phase != "wait" {
			t.Errorf("without a percentage: got %+v, want none", work)
		}
		(*Board)(nil).Track(slog.New(&log), "hardware manager", "acme").SetPercent("write", nil)
	})
}
