package journal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A follower gets what was logged before and after, line by line, with secrets masked that were registered later.
func TestFollow(t *testing.T) {
	j := New(io.Discard, nil, 1<<20)
	log := j.Logger()
	log.Error("stored", "err", "a\nb")
	lines := j.Follow(1 << 20)
	started := time.Now()
	log.Warn("a s3cret-word")
	j.Redact("s3cret-word")
	type line struct {
		level slog.Level
		text  string
	}
	const stamp = len("15:04:05.000 ")
	for i, want := range []line{
		{slog.LevelError, "ERROR stored"},
		{slog.LevelInfo, "    err:"},
		{slog.LevelInfo, "      a"},
		{slog.LevelInfo, "      b"},
		{slog.LevelWarn, "WARN  a ***"},
	} {
		got, dropped, err := lines.Next(t.Context())
		if err != nil || dropped != 0 {
			t.Fatal(err, dropped)
		}
		text := got.Text
		if i == 0 || i == 4 {
			text = text[stamp:]
		}
		if diff := cmp.Diff(want, line{got.Level, text}, cmp.AllowUnexported(line{})); diff != "" {
			t.Errorf("line %d: -want +got:\n%s", i, diff)
		}
		if known := !got.Time.IsZero(); known != (i == 4) || known && got.Time.Before(started.Add(-time.Second)) {
			t.Errorf("line %d: got time %v", i, got.Time)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := lines.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("without a line: got %v, want %v", err, context.Canceled)
	}
}
