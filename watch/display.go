package watch

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"ironroot/internal/printable"
)

// text describes what a node is doing, without its name.
func text(n *Node) string {
	words := []string{n.State}
	switch line := n.Line(); {
	case line != "":
		words = append(words, line)
	case n.Step != "":
		words = append(words, n.Step)
	}
	if n.Failed() && n.LastError != "" {
		words = append(words, n.LastError)
	}
	return strings.Join(words, ", ")
}

// lines prints a line for each change of a node.
type lines struct {
	out   io.Writer
	shown map[string]string // by UUID
}

// NewLines returns a display that prints a line with the time for each change of a node.
func NewLines(out io.Writer) Display {
	return &lines{out, map[string]string{}}
}

// Show implements [Display].
func (l *lines) Show(nodes []Node) {
	for _, n := range nodes {
		if now := text(&n); l.shown[n.UUID] != now {
			l.shown[n.UUID] = now
			l.Note(n.Label() + ": " + now)
		}
	}
}

// Note implements [Display].
func (l *lines) Note(text string) {
	_, _ = fmt.Fprintf(l.out, "%s %s\n", time.Now().Format(time.TimeOnly), printable.Text(text)) // to be read by people
}

// Close implements [Display].
func (l *lines) Close() {}

// barWidth is the width of a progress bar in characters.
const barWidth = 24

// bars shows a progress bar for each node.
type bars struct {
	progress *mpb.Progress

	mu    sync.Mutex
	nodes map[string]*bar // by UUID
}

// bar is the progress bar of a node.
type bar struct {
	*mpb.Bar

	label, text string
}

// NewBars returns a display that shows a progress bar for each node on a terminal.
func NewBars(out io.Writer) Display {
	return newBars(mpb.WithOutput(out))
}

func newBars(options ...mpb.ContainerOption) *bars {
	return &bars{progress: mpb.New(options...), nodes: map[string]*bar{}}
}

// Show implements [Display].
func (b *bars) Show(nodes []Node) {
	for _, n := range nodes {
		percent, _ := n.Percent()
		b.node(&n).SetCurrent(int64(percent))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for uuid, bar := range b.nodes {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.UUID == uuid }) {
			bar.Abort(true)
			delete(b.nodes, uuid)
		}
	}
}

// node returns the bar of a node with its latest text.
func (b *bars) node(n *Node) *bar {
	b.mu.Lock()
	known, ok := b.nodes[n.UUID]
	if !ok {
		known = &bar{}
		b.nodes[n.UUID] = known
	}
	known.label, known.text = printable.Text(n.Label()), printable.Text(text(n))
	b.mu.Unlock()
	if !ok {
		known.Bar = b.progress.New(0, mpb.BarStyle(), // a bar with a total would end at 100 %
			mpb.BarWidth(barWidth), mpb.BarFillerTrim(),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.read(known).label },
				decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string {
				return " " + runewidth.Truncate(b.read(known).text, max(s.AvailableWidth-barWidth-1, 0), "...")
			})))
		known.SetTotal(100, false)
	}
	return known
}

// read returns a copy of the texts of a bar.
func (b *bars) read(known *bar) bar {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bar{label: known.label, text: known.text}
}

// Note implements [Display].
func (b *bars) Note(text string) {
	_, _ = fmt.Fprintln(b.progress, printable.Text(text)) // to be read by people
}

// Close implements [Display]. The bars stay on the terminal.
func (b *bars) Close() {
	b.mu.Lock()
	for _, bar := range b.nodes {
		bar.Abort(false)
	}
	b.mu.Unlock()
	b.progress.Wait()
}
