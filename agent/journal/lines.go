package journal

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Line is a line of a journal.
type Line struct {
	Time  time.Time // zero for lines that were logged before Follow
	Level slog.Level
	Text  string // as on the console, without the line feed
}

// Lines is a queue of the lines of a journal, for one reader.
type Lines struct {
	journal *Journal
	limit   int64

	// The lock of the journal protects these.
	pending []Line
	bytes   int64 // of pending
	dropped int   // lines
	added   chan struct{}
}

// Follow returns the lines that the journal has stored, and all later ones. Of those that were not read, it keeps the
// latest ones of at most limit bytes.
func (j *Journal) Follow(limit int64) *Lines {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := &Lines{journal: j, limit: limit, added: make(chan struct{})}
	for text := range strings.Lines(string(j.lines)) {
		l.add(Line{Level: levelOf(text), Text: strings.TrimSuffix(text, "\n")})
	}
	j.followers = append(j.followers, l)
	return l
}

// levelOf returns the level of a line that handler has formatted.
func levelOf(text string) slog.Level {
	const timeBytes = len("15:04:05.000 ")
	var level slog.Level
	if len(text) <= timeBytes {
		return level
	}
	word, _, _ := strings.Cut(text[timeBytes:], " ")
	_ = level.UnmarshalText([]byte(word)) // a line of a stack has none: Info
	return level
}

// add adds a line. The lock of the journal must be held.
func (l *Lines) add(line Line) {
	l.pending = append(l.pending, line)
	for l.bytes += int64(len(line.Text)); l.bytes > l.limit; l.dropped++ {
		l.bytes -= int64(len(l.pending[0].Text))
		l.pending = l.pending[1:]
	}
	close(l.added)
	l.added = make(chan struct{})
}

// Next returns the next line, and the number of lines before it that were dropped. It waits for one until ctx ends.
func (l *Lines) Next(ctx context.Context) (line Line, dropped int, err error) {
	for {
		l.journal.mu.Lock()
		if len(l.pending) > 0 {
			line, dropped = l.pending[0], l.dropped
			l.pending, l.dropped = l.pending[1:], 0
			l.bytes -= int64(len(line.Text))
			line.Text = l.journal.clean(line.Text) // of secrets that were registered later
			l.journal.mu.Unlock()
			return line, dropped, nil
		}
		added := l.added
		l.journal.mu.Unlock()
		select {
		case <-added:
		case <-ctx.Done():
			return Line{}, 0, ctx.Err()
		}
	}
}
