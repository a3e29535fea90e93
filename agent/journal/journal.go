// Package journal is the agent's log: plain lines on the console, and the latest of them in memory for Ironic to
// collect. Secrets are redacted in both. The package also packs the log archive, which ironic-python-agent creates
// from the output of system programs, from the kernel's interfaces.
package journal

import (
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Journal collects log lines. It is safe for concurrent use.
type Journal struct {
	level *slog.LevelVar

	mu       sync.Mutex
	console  io.Writer
	capacity int64 // bytes kept
	lines    []byte
	dropped  bool     // the oldest lines were dropped
	secrets  []string // longest first, because one secret can contain another
	kept     []Member // for the log archive

	followers []*Lines
}

// New returns a journal that writes to console and keeps the latest capacity bytes. A nil level is Info.
func New(console io.Writer, level *slog.LevelVar, capacity int64) *Journal {
	if level == nil {
		level = &slog.LevelVar{}
	}
	return &Journal{level: level, console: console, capacity: capacity}
}

// Logger returns a logger that writes to the journal.
func (j *Journal) Logger() *slog.Logger { return slog.New(&handler{journal: j}) }

// Level returns the variable with the minimum level of logged lines.
func (j *Journal) Level() *slog.LevelVar { return j.level }

// Redact replaces the secret, in every form that forms returns, by *** in all stored and all later lines. It ignores
// the empty string.
func (j *Journal) Redact(secret string) {
	if secret == "" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, form := range forms(secret) {
		if !slices.Contains(j.secrets, form) {
			j.secrets = append(j.secrets, form)
		}
	}
	slices.SortFunc(j.secrets, func(a, b string) int { return len(b) - len(a) })
	j.lines = []byte(j.clean(string(j.lines)))
}

// RedactURLs redacts the passwords of all URLs in a text.
func (j *Journal) RedactURLs(text string) {
	for _, found := range urlPassword().FindAllStringSubmatch(text, -1) {
		j.Redact(found[1])
		if plain, err := url.PathUnescape(found[1]); err == nil {
			j.Redact(plain)
		}
	}
}

// urlPassword matches the password of a URL (RFC 3986, section 3.2.1).
func urlPassword() *regexp.Regexp { return regexp.MustCompile(`://[^/?#\s@:]*:([^/?#\s@]+)@`) }

// Bytes returns the stored lines.
func (j *Journal) Bytes() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped {
		return append([]byte("(older lines dropped)\n"), j.lines...)
	}
	return slices.Clone(j.lines)
}

// Clean returns text with all registered secrets redacted.
func (j *Journal) Clean(text string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.clean(text)
}

// minTruncatedSecret is the minimum length of the beginning of a secret, in bytes, that CleanKernelLog redacts.
const minTruncatedSecret = 6

// CleanKernelLog is like Clean, for lines of the kernel's log. The kernel truncates lines after about 1000 bytes.
// Therefore it also redacts the beginning of a secret, of at least 6 bytes, at the end of a long line.
func (j *Journal) CleanKernelLog(text string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(j.cleanEnd(line))
	}
	return j.clean(out.String())
}

// cleanEnd redacts the longest beginning of a secret at the end of a line that is truncated, or can be. Parts of it can
// be secrets, too.
func (j *Journal) cleanEnd(line string) string {
	text := strings.TrimSuffix(line, "\n")
	text, marked := strings.CutSuffix(text, truncationMark)
	if len(line) < minTruncated && !marked {
		return line
	}
	longest := 0
	for _, secret := range j.secrets {
		for n := min(len(secret), len(text)); n > longest && n >= minTruncatedSecret; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				longest = n
			}
		}
	}
	if longest == 0 {
		return line
	}
	return text[:len(text)-longest] + "***" + line[len(text):]
}

func (j *Journal) clean(text string) string {
	for _, secret := range j.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// write stores a record, whose text can have several lines.
func (j *Journal) write(now time.Time, level slog.Level, line string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	line = j.clean(line)
	for _, f := range j.followers {
		for text := range strings.Lines(line) {
			f.add(Line{now, level, strings.TrimSuffix(text, "\n")})
		}
	}
	j.lines = append(j.lines, line...)
	if over := int64(len(j.lines)) - j.capacity; over > 0 {
		// Drop a quarter at once, so that the rest is not moved for every line.
		cut := min(int64(len(j.lines)), over+j.capacity/4)
		for cut < int64(len(j.lines)) && j.lines[cut-1] != '\n' {
			cut++
		}
		j.lines = append(j.lines[:0], j.lines[cut:]...)
		j.dropped = true
	}
	_, err := io.WriteString(j.console, line)
	return err
}
