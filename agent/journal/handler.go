package journal

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// handler formats records as "15:04:05.000 LEVEL message key=value". A value of several lines, such as a stack, follows
// its line, indented.
type handler struct {
	journal *Journal
	prefix  string // of keys, from groups: "group."
	attrs   []slog.Attr
}

// Enabled implements [slog.Handler].
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.journal.level.Level()
}

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], prefixed(h.prefix, attrs)...)
	return &next
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	next.prefix += name + "."
	return &next
}

func prefixed(prefix string, attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = slog.Attr{Key: prefix + a.Key, Value: a.Value}
	}
	return out
}

// Handle implements [slog.Handler].
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	var line, below strings.Builder
	if !r.Time.IsZero() {
		line.WriteString(r.Time.Format("15:04:05.000 "))
	}
	fmt.Fprintf(&line, "%-5s %s", r.Level, printable(h.journal.Clean(r.Message)))
	for _, a := range h.attrs {
		h.write(&line, &below, "", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		h.write(&line, &below, h.prefix, a)
		return true
	})
	return h.journal.write(r.Time, r.Level, line.String()+"\n"+below.String())
}

func (h *handler) write(line, below *strings.Builder, prefix string, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			h.write(line, below, prefix, member)
		}
		return
	}
	if a.Key == "" {
		return
	}
	text := h.valueText(value)
	if strings.Contains(text, "\n") {
		fmt.Fprintf(below, "    %s%s:\n", prefix, a.Key)
		for part := range strings.Lines(text) {
			below.WriteString("      " + printable(strings.TrimRight(part, "\n")) + "\n")
		}
		return
	}
	fmt.Fprintf(line, " %s%s=%s", prefix, a.Key, quoted(text))
}

// valueText returns the text of a value without secrets. Secrets are redacted before the text is clipped, quoted or
// escaped, because they might not be found afterwards.
func (h *handler) valueText(v slog.Value) string {
	if v.Kind() == slog.KindTime {
		return v.Time().Format(time.RFC3339)
	}
	if c, ok := v.Any().(Clipped); ok {
		return Clipped{h.journal.Clean(c.Text), c.Limit}.String()
	}
	return h.journal.Clean(v.String())
}

// Clipped is an attribute's value from an untrusted source, such as a request's path. The log contains its first Limit
// bytes.
type Clipped struct {
	Text  string
	Limit int
}

// String returns the clipped text.
func (c Clipped) String() string {
	if len(c.Text) <= c.Limit {
		return c.Text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(c.Text[:c.Limit], ""), len(c.Text))
}

// quoted quotes text that contains spaces, quotes or unprintable characters, and returns any other text unchanged.
func quoted(text string) string {
	if text == "" ||
		strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '"' || !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// printable replaces control characters, and those that reorder text or are invisible, because foreign text must not
// control the operator's terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) && r != '\t' {
			return ' '
		}
		return r
	}, text)
}
