//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
)

// maxLine limits a log line of a worker in bytes, and maxAttributes the number of its attributes. Other lines are
// dropped.
const (
	maxLine       = 16 << 10
	maxAttributes = 32
)

// line is a log line as it goes from a worker to process 1.
type line struct {
	Level      slog.Level  `json:"level"`
	Message    string      `json:"message"`
	Attributes [][2]string `json:"attributes"` // name and value
}

// Logger returns the logger of a worker, whose lines process 1 writes to its log.
func Logger() *slog.Logger { return slog.New(&handler{mu: new(sync.Mutex), out: os.Stdout}) }

// handler writes log lines as JSON. It has no groups.
type handler struct {
	mu         *sync.Mutex
	out        io.Writer
	attributes [][2]string
}

// Enabled implements [slog.Handler].
func (h *handler) Enabled(context.Context, slog.Level) bool { return true } // process 1 decides

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{mu: h.mu, out: h.out, attributes: appendAttributes(slices.Clip(h.attributes), attrs)}
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(string) slog.Handler { return h }

// Handle implements [slog.Handler].
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	l := line{Level: r.Level, Message: r.Message, Attributes: slices.Clone(h.attributes)}
	r.Attrs(func(a slog.Attr) bool {
		l.Attributes = appendAttributes(l.Attributes, []slog.Attr{a})
		return true
	})
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err = h.out.Write(append(text, '\n'))
	return err
}

func appendAttributes(list [][2]string, attrs []slog.Attr) [][2]string {
	for _, a := range attrs {
		list = append(list, [2]string{a.Key, a.Value.Resolve().String()})
	}
	return list
}

// copyLines writes the lines of a worker to a log until there are no more.
func copyLines(log *slog.Logger, from *bufio.Reader) error {
	for {
		text, err := from.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is too long
			text = nil
			_, err = from.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log lines: %w", err)
		}
		if l, err := parseLine(text); err != nil {
			log.Warn("log line of a worker dropped", "err", err)
		} else {
			l.log(log)
		}
	}
}

// parseLine parses a log line. A worker handles foreign data, so its lines are foreign, too.
func parseLine(text []byte) (*line, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("too long or empty")
	}
	l := new(line)
	if err := json.Unmarshal(text, l); err != nil {
		return nil, errors.New("invalid JSON")
	}
	if len(l.Attributes) > maxAttributes {
		return nil, fmt.Errorf("%d attributes, want at most %d", len(l.Attributes), maxAttributes)
	}
	return l, nil
}

func (l *line) log(log *slog.Logger) {
	attrs := make([]slog.Attr, 0, len(l.Attributes))
	for _, a := range l.Attributes {
		attrs = append(attrs, slog.String(a[0], a[1]))
	}
	log.LogAttrs(context.Background(), l.Level, l.Message, attrs...)
}
