package demo

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// waitInterval is the interval between reports that a wait continues.
const waitInterval = 10 * time.Second

// progress prints lines that start with the seconds since the start of the demonstration.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress { return &progress{out: out, start: time.Now()} }

func (p *progress) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *progress) say(format string, args ...any) {
	p.locked(func() {
		_, _ = fmt.Fprintf(p.out, "[%6.1f s] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
	})
}

// print writes text unchanged.
func (p *progress) print(text string) {
	p.locked(func() { _, _ = io.WriteString(p.out, text) })
}

// Write prints progress of other packages line by line.
func (p *progress) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			p.say("%s", line)
		}
	}
	return len(text), nil
}

// wait reports a wait at its start and every waitInterval, with the seconds so far, until end is called.
func (p *progress) wait(what string) (end func()) {
	p.say("waiting for: %s", what)
	began, done := time.Now(), make(chan struct{})
	go func() {
		ticker := time.NewTicker(waitInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.say("  still waiting for: %s (%.0f s)", what, time.Since(began).Seconds())
			case <-done:
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

func (d *demo) printReport() {
	text := "\nTimeline (seconds since power-on)\n"
	for _, m := range d.report.Timeline {
		text += fmt.Sprintf("  %7.1f  %s\n", m.At.Seconds(), m.Text)
	}
	text += "\nArtefacts\n"
	for _, a := range d.report.Artefacts {
		text += fmt.Sprintf("  %8.1f MiB  %s\n", float64(a.Size)/(1<<20), a.Name)
	}
	d.progress.print(text +
		fmt.Sprintf("\nThe node was inspected, cleaned, deployed and booted in %.0f s; the logs are in %s\n",
			time.Since(d.began).Seconds(), d.report.Dir))
}

func (d *demo) printFailure(err error) {
	text := ""
	if d.machine != nil {
		text += fmt.Sprintf("\nThe end of the node's console:\n%s\n", indent(d.machine.Console().Tail(40)))
	}
	for _, v := range d.report.Violations {
		text += fmt.Sprintf("protocol violated: %s\n", v)
	}
	d.progress.print(text + fmt.Sprintf("\nFAILED after %.0f s: %v\nlogs: %s\n",
		time.Since(d.progress.start).Seconds(), err, filepath.Join(d.report.Dir, "console.log")))
}

func indent(text string) string { return "  | " + strings.ReplaceAll(text, "\n", "\n  | ") }
