// Package watch shows the progress of nodes, as Ironic has stored it in their driver_internal_info.
package watch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ironroot/internal/pause"
)

// Node is a node at one moment.
type Node struct {
	UUID      string
	Name      string // "" if it has none
	State     string // provision state
	Target    string // provision state that it will reach, "" if Ironic is not changing the node
	Step      string // that Ironic is executing, "" for none
	Progress  string // line of the ramdisk about its latest step, "" for none
	LastError string

	Heartbeat time.Time // the latest one of the ramdisk, zero if it is unknown
	// UpdatedAt is the time at which the state changed, or Ironic handled a heartbeat in it. It is zero if it is
	// unknown.
	UpdatedAt time.Time
	// Stale is set if the line has been there since before Ironic began to change the node.
	Stale bool
}

// maxHeartbeatDelay is the longest time that Ironic takes to handle a heartbeat. In waiting states, it then sets
// UpdatedAt.
const maxHeartbeatDelay = 5 * time.Second

// Label returns the name, or the UUID of a node without one.
func (n *Node) Label() string {
	if n.Name != "" {
		return n.Name
	}
	return n.UUID
}

// Failed reports whether the node has failed to reach a state.
func (n *Node) Failed() bool { return strings.HasSuffix(n.State, "failed") || n.State == "error" }

// Rests reports whether Ironic is not changing the state of the node. A failed node keeps its target.
func (n *Node) Rests() bool { return n.Target == "" || n.Failed() }

// Line returns the line of the ramdisk, or "" if it is not about what Ironic is doing now: the line stays in Ironic
// until a heartbeat brings another one.
//
//   - An inspection has no steps, so the line is one from before it.
//   - While Ironic is executing a step, the line must be about that one.
//   - A node that rests shows results only. Ironic may have aborted a step in between.
//   - While Ironic is changing a node, or if it failed to, a heartbeat must have come in the current state.
//   - Between two steps, a result belongs to an earlier one.
func (n *Node) Line() string {
	step, _, _ := strings.Cut(n.Progress, ":")
	isResult := result.MatchString(n.Progress)
	switch {
	case inspectStates[n.State]:
		return ""
	case n.Step != "" && n.Step != step:
		return ""
	case n.Rests() && !isResult:
		return ""
	case n.Target != "" && n.outdated():
		return ""
	case !n.Rests() && n.Step == "" && isResult:
		return ""
	}
	return n.Progress
}

// outdated reports whether no heartbeat has come in the current state.
func (n *Node) outdated() bool {
	return n.Stale || !n.Heartbeat.IsZero() && n.UpdatedAt.Sub(n.Heartbeat) > maxHeartbeatDelay
}

// inspectStates are the provision states of an inspection. Ironic takes the data of an inspection as a heartbeat, too.
var inspectStates = map[string]bool{"inspecting": true, "inspect wait": true, "inspect failed": true}

var (
	percentage = regexp.MustCompile(`^[^:]*: (\d{1,3})%`)
	finished   = regexp.MustCompile(`^[^:]*: done\b`)
	result     = regexp.MustCompile(`^[^:]*: (done|failed)\b`)
)

// Percent returns the percentage of the running step, and false if it is unknown. It is 100 for the result of a step,
// unless the node has failed: a step has succeeded before the one that failed.
func (n *Node) Percent() (int, bool) {
	line := n.Line()
	switch {
	case n.Failed():
		return 0, false
	case finished.MatchString(line):
		return 100, true
	}
	m := percentage.FindStringSubmatch(line)
	if m == nil {
		return 0, false
	}
	percent, err := strconv.Atoi(m[1])
	return min(percent, 100), err == nil
}

// Source reads nodes.
type Source interface {
	// Node returns a node by its name or UUID. The error wraps ErrNotFound if there is none.
	Node(ctx context.Context, name string) (Node, error)
	// Nodes returns all nodes.
	Nodes(ctx context.Context) ([]Node, error)
}

// ErrNotFound is returned for a node that does not exist.
var ErrNotFound = errors.New("node not found")

// Display shows nodes.
type Display interface {
	Show(nodes []Node)
	Note(text string) // shows a line that is not about a node
	Close()           // ends the display
}

// Options are the options of Run.
type Options struct {
	Source  Source
	Display Display
	// Names are names and UUIDs of nodes. Without one, all nodes that Ironic is changing are shown, forever.
	Names    []string
	Interval time.Duration // between two requests for a node
}

// Run shows nodes until all of them rest, and returns an error if one has failed. It returns the error of ctx if that
// ends before. The first request must succeed; later ones that fail are repeated.
func Run(ctx context.Context, o Options) error {
	defer o.Display.Close()
	noted := ""
	resting := restHeartbeats{}
	for first := true; ; first = false {
		nodes, err := read(ctx, o)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (first || errors.Is(err, ErrNotFound)):
			return err
		case err != nil:
			if text := fmt.Sprintf("Ironic cannot be reached, still trying: %v", err); text != noted {
				o.Display.Note(text)
				noted = text
			}
		default:
			noted = ""
			resting.setStale(nodes)
			if len(o.Names) == 0 {
				nodes = slices.DeleteFunc(nodes, func(n Node) bool { return n.Rests() })
			}
			o.Display.Show(nodes)
			if len(o.Names) > 0 && !slices.ContainsFunc(nodes, func(n Node) bool { return !n.Rests() }) {
				return failures(nodes)
			}
		}
		if err := pause.For(ctx, o.Interval); err != nil {
			return err
		}
	}
}

// restHeartbeats are the latest heartbeats of nodes when they rested, by UUID.
type restHeartbeats map[string]time.Time

// setStale sets Stale of nodes whose latest heartbeat came while they rested, and stores the heartbeats of nodes that
// rest.
func (r restHeartbeats) setStale(nodes []Node) {
	for i := range nodes {
		n := &nodes[i]
		if n.Rests() {
			r[n.UUID] = n.Heartbeat
			continue
		}
		before, rested := r[n.UUID]
		n.Stale = rested && !n.Heartbeat.IsZero() && !n.Heartbeat.After(before)
	}
}

// read returns the nodes, before those that rest are removed.
func read(ctx context.Context, o Options) ([]Node, error) {
	if len(o.Names) == 0 {
		return o.Source.Nodes(ctx)
	}
	var nodes []Node
	for _, name := range o.Names {
		n, err := o.Source.Node(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// failures returns an error with the nodes that have failed.
func failures(nodes []Node) error {
	var failed []error
	for _, n := range nodes {
		if n.Failed() {
			failed = append(failed, fmt.Errorf("node %s: %s: %s", n.Label(), n.State, n.LastError))
		}
	}
	return errors.Join(failed...)
}
