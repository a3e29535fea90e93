// Package journal is the agent's log: plain lines on the console, the latest of them in memory for Ironic to collect,
// and no secret in either. It also packs the archive of logs that ironic-python-agent makes from the output of system
// programs, here from the kernel's own interfaces.
package journal

import (
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Journal collects log lines. It is safe for concurrent use.
type Journal struct {
	level *slog.LevelVar

	mu       sync.Mutex
	console  io.Writer
	capacity int64 // bytes kept
	lines    []byte
	dropped  bool     // the oldest lines are gone
	secrets  []string // longest first, so that a secret inside another one leaves nothing of it
}

// New makes a journal that writes to console and keeps the latest capacity bytes. A nil level is Info.
func New(console io.Writer, level *slog.LevelVar, capacity int64) *Journal {
	if level == nil {
		level = &slog.LevelVar{}
	}
	return &Journal{level: level, console: console, capacity: capacity}
}

// Logger gives a logger that writes to the journal.
func (j *Journal) Logger() *slog.Logger { return slog.New(&handler{journal: j}) }

// Level gives the variable that says which lines are taken.
func (j *Journal) Level() *slog.LevelVar { return j.level }

// Redact replaces the secret, in every form that forms returns, by *** in all lines that are kept and in all later
// ones. The empty string is ignored.
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

// RedactURLs does the same with the passwords of all URLs in a text.
func (j *Journal) RedactURLs(text string) {
	for _, found := range urlPassword().FindAllStringSubmatch(text, -1) {
		j.Redact(found[1])
		if plain, err := url.PathUnescape(found[1]); err == nil {
			j.Redact(plain)
		}
	}
}

// urlPassword finds the password of a URL (RFC 3986, section 3.2.1).
func urlPassword() *regexp.Regexp { return regexp.MustCompile(`://[^/?#\s@:]*:([^/?#\s@]+)@`) }

// Bytes gives the kept lines.
func (j *Journal) Bytes() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped {
		return append([]byte("(older lines are not kept)\n"), j.lines...)
	}
	return slices.Clone(j.lines)
}

// Clean returns text without the secrets that were registered.
func (j *Journal) Clean(text string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.clean(text)
}

func (j *Journal) clean(text string) string {
	for _, secret := range j.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

func (j *Journal) write(line string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	line = j.clean(line)
	j.lines = append(j.lines, line...)
	if over := int64(len(j.lines)) - j.capacity; over > 0 {
		// A quarter goes at once, so that the rest is not moved with every line.
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
