//go:build linux

package ironic

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// transcript contains the lines of a machine's serial console over all its starts.
type transcript struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{} // closed and replaced at each line
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (t *transcript) Line(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *transcript) mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

func (t *transcript) tail(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines[max(0, len(t.lines)-n):], "\n")
}

func (t *transcript) since(mark int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines[min(mark, len(t.lines)):], "\n")
}

func (t *transcript) follow(ctx context.Context, from int, expression *regexp.Regexp) ([]string, error) {
	for {
		t.mu.Lock()
		fresh, changed := t.lines[min(from, len(t.lines)):], t.changed
		t.mu.Unlock()
		for _, line := range fresh {
			if groups := expression.FindStringSubmatch(line + "\n"); groups != nil {
				return groups, nil
			}
		}
		from += len(fresh)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %q on the console: %w; its end is:\n%s",
				expression, ctx.Err(), t.tail(20))
		}
	}
}
