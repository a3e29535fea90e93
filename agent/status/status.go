// Package status is what the agent is doing, as one value: the parts of the agent write into it, and the status screen
// and the report of a node that cannot reach Ironic are made of it.
//
// It also knows what to say to a person: what an error probably means, and what to try next. All text that comes from
// elsewhere is made one printable line without secrets before it is kept.
package status

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"ironroot/netboot"
	"ironroot/netboot/lldp"
)

// Phase is where the agent is on its way from its start to serving Ironic; Ready is after the last one.
type Phase string

// The phases that mean something here; the others are only shown.
const (
	Network    Phase = "network"
	Discovery  Phase = "discovery"
	Inspection Phase = "inspection"
	Lookup     Phase = "lookup"
	Address    Phase = "address"
	Ready      Phase = "ready"
	Lockdown   Phase = "lockdown"
)

// State is everything at one moment. It is a copy: nobody else changes it.
type State struct {
	Version  string
	Hostname string
	Phase    Phase
	Since    time.Time // when Phase began
	NodeUUID string    // "" before the lookup
	NodeName string    // "" where Ironic does not tell it
	Links    []Link
	Adapters []Adapter // that have no network interface
	DNS      []string  // name servers in use
	APIs     []API     // in the order they are tried
	Beat     Beat
	Command  Command // the one that runs, or else the last one; no Name before the first
	Work     []Progress
	Problems []Problem // what is wrong now, the newest one last

	links []netboot.Link // with the history that Links are made of; nobody changes it
}

// Link is one link of the machine.
type Link struct {
	Name      string
	MAC       string
	Up        bool
	Carrier   bool
	Speed     int // Mbit/s, 0 = unknown
	Addresses []netip.Prefix
	Neighbour lldp.Neighbour
	VLANs     []int  // that the neighbour names
	Trouble   string // what does not work, "" = nothing known
}

// API is one URL of Ironic, and what came of the latest try.
type API struct {
	URL     string
	Tried   time.Time // zero = not yet
	Trouble string    // "" = it answered
	Advice  string
}

// Beat is the latest heartbeat.
type Beat struct {
	Accepted time.Time // zero = none yet
	Failed   bool      // the latest one was not accepted
}

// Command is a command of Ironic.
type Command struct {
	Name    string // "deploy.execute_deploy_step"
	Step    string // of a command that executes one
	Started time.Time
	Ended   time.Time // zero = it runs
	Failed  bool
}

// Problem is something that went wrong and is not well again.
type Problem struct {
	Source string // what part of the agent it comes from; a later one of the same source replaces it
	Text   string
	Advice string // what to do about it, "" = nothing known
	At     time.Time
}

// Board holds the present State. Its methods may be called from any goroutine; those of a nil Board do nothing.
type Board struct {
	clean   func(string) string
	mu      sync.Mutex
	state   State
	work    map[string]Progress // by device
	changed chan struct{}       // closed and replaced at every change
}

// NewBoard returns a board. clean takes secrets out of text that comes from elsewhere; nil leaves it as it is.
func NewBoard(version string, clean func(string) string) *Board {
	if clean == nil {
		clean = func(text string) string { return text }
	}
	return &Board{clean: clean, state: State{Version: version}, work: map[string]Progress{}, changed: make(chan struct{})}
}

// State returns the present state.
func (b *Board) State() *State {
	if b == nil {
		return &State{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Links, s.APIs, s.Problems = slices.Clone(s.Links), slices.Clone(s.APIs), slices.Clone(s.Problems)
	s.Adapters = slices.Clone(s.Adapters)
	for _, device := range slices.Sorted(maps.Keys(b.work)) {
		s.Work = append(s.Work, b.work[device])
	}
	return &s
}

// Changed returns a channel that is closed at the next change. Take it before State, so that no change is missed. That
// of a nil Board is never closed.
func (b *Board) Changed() <-chan struct{} {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// change locks the state for a change; tell unlocks it, and tells whoever waits.
func (b *Board) change() *State {
	b.mu.Lock()
	return &b.state
}

func (b *Board) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
	b.mu.Unlock()
}

// Enter says that a phase begins.
func (b *Board) Enter(phase Phase) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.tell()
	s.Phase, s.Since = phase, time.Now()
}

// Node says which node this machine is.
func (b *Board) Node(uuid, name string) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.tell()
	s.NodeUUID, s.NodeName = b.line(uuid), b.line(name)
}

// Ironic names the URLs that will be tried. Those that are known keep what came of them.
func (b *Board) Ironic(urls []string) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.tell()
	old := s.APIs
	s.APIs = nil
	for _, url := range urls {
		a := API{URL: b.line(plainURL(url))}
		if i := find(old, a.URL); i >= 0 {
			a = old[i]
		}
		s.APIs = append(s.APIs, a)
	}
}

func find(list []API, url string) int {
	return slices.IndexFunc(list, func(a API) bool { return a.URL == url })
}

// Tried says what came of a request to one of Ironic's URLs; nil means that it answered.
func (b *Board) Tried(url string, err error) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.tell()
	a := API{URL: b.line(plainURL(url)), Tried: time.Now()}
	if err != nil {
		a.Trouble, a.Advice = b.line(Reason(err)), Advice(err)
	}
	if i := find(s.APIs, a.URL); i >= 0 {
		s.APIs[i] = a
	} else {
		s.APIs = append(s.APIs, a)
	}
}

// Beaten says what came of a heartbeat.
func (b *Board) Beaten(err error) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.tell()
	if s.Beat.Failed = err != nil; !s.Beat.Failed {
		s.Beat.Accepted = time.Now()
	}
	b.problem("heartbeat", err)
}

// Problem says that something failed; nil takes back what the same source said before.
func (b *Board) Problem(source string, err error) {
	if b == nil {
		return
	}
	b.change()
	defer b.tell()
	b.problem(source, err)
}

// problem is Problem within a change.
func (b *Board) problem(source string, err error) {
	s := &b.state
	s.Problems = slices.DeleteFunc(s.Problems, func(p Problem) bool { return p.Source == source })
	if err != nil {
		s.Problems = append(s.Problems, Problem{source, b.line(brief(err)), Advice(err), time.Now()})
	}
}

// Begin says that a command begins; step may be "". The failure of the one before is history.
func (b *Board) Begin(name, step string) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.tell()
	s.Command = Command{Name: b.line(name), Step: b.line(step), Started: time.Now()}
	b.problem("command", nil)
}

// End says how the command ended.
func (b *Board) End(err error) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.tell()
	s.Command.Ended, s.Command.Failed = time.Now(), err != nil
	b.problem("command", err)
}

func (b *Board) setNetwork(hostname string, dns []string, known []netboot.Link, links []Link) {
	for i := range links {
		links[i].Trouble = b.line(links[i].Trouble)
	}
	s := b.change()
	defer b.tell()
	s.Hostname, s.DNS, s.Links, s.links = hostname, dns, links, known
}

// maxText bounds the length of a text, in characters.
const maxText = 600

// line makes foreign text one printable line without secrets.
func (b *Board) line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, b.clean(text))
	if runes := []rune(text); len(runes) > maxText {
		text = string(runes[:maxText-3]) + "..."
	}
	return strings.TrimSpace(text)
}

// Doing puts the agent's state into a few words.
func (s *State) Doing() string {
	switch {
	case s.Phase == Lockdown:
		return "locked down: restart the machine to go on"
	case s.Command.Name != "" && s.Command.Ended.IsZero():
		return "executing a command"
	}
	switch s.Phase {
	case "":
		return "starting"
	case Network:
		return "waiting for network"
	case Discovery:
		return "looking for Ironic by multicast DNS"
	case Inspection:
		return "inspecting"
	case Lookup:
		return "looking up this node in Ironic"
	case Ready:
		return "waiting for commands"
	}
	return "starting (" + string(s.Phase) + ")"
}

// Alone says that the node is not in touch with Ironic although it should be by now, or soon: it waits for something
// that may never come.
func (s *State) Alone() bool {
	switch s.Phase {
	case Network, Discovery, Lookup, Address:
		return true
	case Inspection:
		return slices.ContainsFunc(s.APIs, func(a API) bool { return a.Trouble != "" })
	case Ready:
		return s.Beat.Failed
	}
	return false
}
