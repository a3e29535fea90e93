package status

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"ironroot/agent/advice"
	"ironroot/netboot/lldp"
	"ironroot/netboot/snapshot"
)

// Phase is a phase of the agent's start. Ready follows the last one.
type Phase string

// The phases that this package distinguishes. Others are only displayed.
const (
	Network    Phase = "network"
	Discovery  Phase = "discovery"
	Inspection Phase = "inspection"
	Lookup     Phase = "lookup"
	Address    Phase = "address"
	Ready      Phase = "ready"
	Lockdown   Phase = "lockdown"
)

// State is a snapshot of the agent's state. It is not shared.
type State struct {
	Version  string
	Hostname string
	Phase    Phase
	Since    time.Time // when Phase began
	NodeUUID string    // "" before the lookup
	NodeName string    // "" if Ironic sent none
	Links    []Link
	Adapters []Adapter // that have no network interface
	DNS      []string  // name servers in use
	APIs     []API     // in the order they are tried
	Beat     Beat
	Command  Command // the running one, otherwise the last one; Name is "" before the first
	Job      Job     // the latest command that does long work; Name is "" before the first
	Work     []Progress
	Problems []Problem // current problems, the latest last
	HostKeys []string  // type and fingerprint of each host key of the SSH server; nil without one

	links []snapshot.Link // source of Links, with history; immutable
}

// Link is a network link of the machine.
type Link struct {
	Name      string
	MAC       string
	Up        bool
	Carrier   bool
	Speed     int // Mbit/s, 0 = unknown
	Addresses []netip.Prefix
	Neighbour lldp.Neighbour
	VLANs     []int  // announced by the neighbour
	Trouble   string // description of a failure, "" = none
}

// API is a URL of Ironic with the result of the latest request.
type API struct {
	URL     string
	Tried   time.Time // zero = not yet
	Trouble string    // "" = it responded
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
	Ended   time.Time // zero = it is running
	Failed  bool
}

// Problem is a failure that persists.
type Problem struct {
	Source string // the part of the agent that failed; a later problem of the same source replaces it
	Text   string
	Advice string // what to try, "" = unknown
	At     time.Time
}

// Board stores the current State. It is safe for concurrent use. Methods of a nil Board do nothing.
type Board struct {
	cleaner Redactor // nil cleans nothing
	mu      sync.Mutex
	state   State
	command int             // number of the latest command; 0 before the first
	job     *job            // of the latest command that does long work; nil before the first
	work    map[string]work // by device
	changed chan struct{}   // closed and replaced at every change
}

// work is the progress of a Tracker.
type work struct {
	Progress

	tracker *tracker
}

// Redactor redacts secrets: see [journal.Journal].
type Redactor interface {
	Clean(text string) string
}

// NewBoard returns a board. The cleaner, if not nil, redacts secrets in foreign text.
func NewBoard(version string, cleaner Redactor) *Board {
	return &Board{
		cleaner: cleaner, state: State{Version: version}, work: map[string]work{}, changed: make(chan struct{}),
	}
}

// State returns a snapshot of the state.
func (b *Board) State() *State {
	if b == nil {
		return &State{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Links, s.APIs, s.Problems = slices.Clone(s.Links), slices.Clone(s.APIs), slices.Clone(s.Problems)
	s.Adapters, s.HostKeys = slices.Clone(s.Adapters), slices.Clone(s.HostKeys)
	for _, device := range slices.Sorted(maps.Keys(b.work)) {
		s.Work = append(s.Work, b.attempted(b.work[device]))
	}
	s.Job = b.describeJob()
	return &s
}

// Changed returns a channel that is closed at the next change. Callers must obtain it before State, so that they miss
// no change. The channel of a nil Board is never closed.
func (b *Board) Changed() <-chan struct{} {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// change locks the state for a change. commit unlocks it and notifies waiters.
func (b *Board) change() *State {
	b.mu.Lock()
	return &b.state
}

func (b *Board) commit() {
	close(b.changed)
	b.changed = make(chan struct{})
	b.mu.Unlock()
}

// Enter records the start of a phase.
func (b *Board) Enter(phase Phase) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	s.Phase, s.Since = phase, time.Now()
}

// Node records the node that this machine is.
func (b *Board) Node(uuid, name string) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	s.NodeUUID, s.NodeName = b.line(uuid), b.line(name)
}

// Ironic records the URLs that will be tried. Known URLs keep their result.
func (b *Board) Ironic(urls []string) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
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

// Tried records the result of a request to one of Ironic's URLs; nil means that it responded.
func (b *Board) Tried(url string, err error) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	a := API{URL: b.line(plainURL(url)), Tried: time.Now()}
	if err != nil {
		a.Trouble, a.Advice = b.line(advice.Reason(err)), advice.For(err)
	}
	if i := find(s.APIs, a.URL); i >= 0 {
		s.APIs[i] = a
	} else {
		s.APIs = append(s.APIs, a)
	}
}

// HeartbeatDone records the result of a heartbeat.
func (b *Board) HeartbeatDone(err error) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	if s.Beat.Failed = err != nil; !s.Beat.Failed {
		s.Beat.Accepted = time.Now()
	}
	b.problem("heartbeat", err)
}

// HostKeys sets the host keys of the SSH server.
func (b *Board) HostKeys(fingerprints []string) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	s.HostKeys = slices.Clone(fingerprints)
}

// Problem records a failure; nil removes the problem of the same source.
func (b *Board) Problem(source string, err error) {
	if b == nil {
		return
	}
	b.change()
	defer b.commit()
	b.problem(source, err)
}

// problem is Problem for callers that hold the lock.
func (b *Board) problem(source string, err error) {
	s := &b.state
	s.Problems = slices.DeleteFunc(s.Problems, func(p Problem) bool { return p.Source == source })
	if err != nil {
		s.Problems = append(s.Problems, Problem{source, b.line(advice.Brief(err)), advice.For(err), time.Now()})
	}
}

// Begin records the start of a command and removes the problem of the previous one. step can be "".
func (b *Board) Begin(name, step string) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	s.Command = Command{Name: b.line(name), Step: b.line(step), Started: time.Now()}
	b.command++
	if step != "" {
		b.newJob(s.Command.Step)
	}
	b.problem("command", nil)
}

// End records the result of the command.
func (b *Board) End(err error) {
	if b == nil {
		return
	}
	s := b.change()
	defer b.commit()
	s.Command.Ended, s.Command.Failed = time.Now(), err != nil
	b.endJob(err)
	b.problem("command", err)
}

func (b *Board) setNetwork(hostname string, dns []string, known []snapshot.Link, links []Link) {
	for i := range links {
		links[i].Trouble = b.line(links[i].Trouble)
	}
	s := b.change()
	defer b.commit()
	s.Hostname, s.DNS, s.Links, s.links = hostname, dns, links, known
}

// maxText limits the length of a text, in characters.
const maxText = 600

// line converts foreign text to one printable line without secrets.
func (b *Board) line(text string) string {
	if b.cleaner != nil {
		text = b.cleaner.Clean(text)
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(cut(text, maxText))
}

// Doing returns a short description of the agent's state.
func (s *State) Doing() string {
	switch {
	case s.Phase == Lockdown:
		return "locked down: restart the machine to continue"
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

// Alone reports whether the node has no contact to Ironic although it should have: it waits for something that can fail
// to happen.
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

// plainURL masks the password of a URL.
func plainURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return text
	}
	return u.Redacted()
}
