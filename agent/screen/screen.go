package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ironroot/agent/status"
)

// The size of a terminal that does not report it, and the minimum size of a frame, in cells.
const (
	DefaultWidth  = 80
	DefaultHeight = 25
	minWidth      = 40
	minHeight     = 10
)

// style contains the SGR parameters of a text.
type style string

const (
	plain  style = "0"
	title  style = "0;7"
	label  style = "0;36"
	strong style = "0;1"
	good   style = "0;32"
	bad    style = "0;1;31"
	hint   style = "0;33"
)

type span struct {
	style style
	text  string
}

// row is a line of the screen.
type row []span

// Frame is the content of the screen: at most height rows of at most width cells.
type Frame struct {
	rows          []row
	width, height int
}

const (
	labels = 11 // cells of the left column
	// Maximum rows per entry, so that no entry displaces the others.
	linkRows, problemRows, adviceRows, workRows, adapterRows = 3, 4, 3, 4, 4

	logRows = 4 // log rows that remain below the links
)

// Draw draws the state, and below it the latest log lines that fit.
func Draw(s *status.State, log []string, width, height int) Frame {
	f := &Frame{width: max(width, minWidth), height: max(height, minHeight)}
	f.header(s)
	f.field("State", s.Doing(), doingStyle(s), 1)
	f.node(s)
	f.ironic(s)
	f.hostKeys(s)
	below := &Frame{width: f.width, height: f.height}
	below.command(s)
	below.trouble(s)
	f.links(s, f.height-len(f.rows)-len(below.rows)-logRows)
	f.rows = append(f.rows, below.rows...)
	f.log(log)
	f.rows = f.rows[:min(len(f.rows), f.height)]
	return *f
}

func (f *Frame) add(r ...span) { f.rows = append(f.rows, r) }

func (f *Frame) header(s *status.State) {
	left, right := cut(" ironroot "+ascii(s.Version), f.width/2), ascii(s.Hostname)+" "
	right = cut(right, f.width-len(left)-1)
	f.add(span{title, left + strings.Repeat(" ", max(1, f.width-len(left)-len(right))) + right})
	f.add()
}

// field adds a label and a text, which wraps to at most the given number of rows.
func (f *Frame) field(name, text string, look style, limit int) {
	for i, line := range wrap(ascii(text), f.width-labels, limit) {
		if i > 0 {
			name = ""
		}
		f.add(span{label, fmt.Sprintf(" %-*s", labels-1, name)}, span{look, line})
	}
}

func doingStyle(s *status.State) style {
	switch {
	case s.Phase == status.Lockdown:
		return bad
	case s.Alone():
		return hint
	case s.Phase == status.Ready:
		return good
	}
	return strong
}

func (f *Frame) node(s *status.State) {
	switch {
	case s.NodeUUID == "":
		f.field("Node", "not known yet", plain, 1)
	case s.NodeName == "":
		f.field("Node", s.NodeUUID, strong, 1)
	default:
		f.field("Node", s.NodeUUID+" "+s.NodeName, strong, 2)
	}
}

func (f *Frame) ironic(s *status.State) {
	if len(s.APIs) == 0 {
		f.field("Ironic", "no URL configured (ipa-api-url)", plain, 1)
		return
	}
	for i := range s.APIs[:min(len(s.APIs), 4)] {
		a := &s.APIs[i]
		name, look := "Ironic", plain
		if i > 0 {
			name = ""
		}
		switch {
		case a.Trouble != "":
			look = bad
		case !a.Tried.IsZero():
			look = good
		}
		if result := a.Result(); len(a.URL)+2+len(result) <= f.width-labels {
			f.field(name, a.URL+"  "+result, look, 1)
		} else {
			f.field(name, a.URL, look, 1)
			f.field("", result, look, 2)
		}
	}
	switch {
	case s.Beat.Failed && s.Beat.Accepted.IsZero():
		f.field("Heartbeat", "not accepted yet", bad, 1)
	case s.Beat.Failed:
		f.field("Heartbeat", "latest failed; last accepted at "+clock(s.Beat.Accepted), bad, 1)
	case !s.Beat.Accepted.IsZero():
		f.field("Heartbeat", "accepted at "+clock(s.Beat.Accepted), good, 1)
	default:
		f.field("Heartbeat", "none yet", plain, 1)
	}
}

// hostKeys adds the host keys of the SSH server, so that whoever logs in can compare them.
func (f *Frame) hostKeys(s *status.State) {
	name := "SSH"
	for _, key := range s.HostKeys {
		f.field(name, key, plain, 2)
		name = ""
	}
}

// clock formats a time of day. An elapsed time would need continuous redrawing.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// links adds the links with carrier, on a limited number of rows, and one row for all others.
func (f *Frame) links(s *status.State, limit int) {
	switch {
	case s.Phase == status.Lockdown:
		f.field("Links", "taken down", plain, 1)
		return
	case len(s.Links) == 0:
		f.noLinks(s)
		return
	}
	part := Frame{width: f.width}
	name, hidden := "Links", 0
	var disconnected []string
	for i := range s.Links {
		l := &s.Links[i]
		if !l.Carrier {
			disconnected = append(disconnected, l.Name)
			continue
		}
		before := len(part.rows)
		part.field(name, l.Name+"  "+linkText(l), linkStyle(l), linkRows)
		if len(part.rows) > max(limit-2, 1) && before > 0 {
			part.rows = part.rows[:before]
			hidden++
			continue
		}
		name = ""
	}
	if hidden > 0 {
		part.field("", fmt.Sprintf("and %d more with carrier", hidden), plain, 1)
	}
	if len(disconnected) > 0 {
		look := plain
		if name != "" {
			look = hint
		}
		part.field(name, "no carrier: "+strings.Join(disconnected, " "), look, 1)
	}
	f.rows = append(f.rows, part.rows...)
}

// noLinks adds the network adapters that have no network interface.
func (f *Frame) noLinks(s *status.State) {
	if len(s.Adapters) == 0 {
		f.field("Links", "no network card found yet", hint, 1)
		return
	}
	f.field("Links", "none: these network adapters need a driver", bad, 1)
	for i := range s.Adapters[:min(len(s.Adapters), adapterRows)] {
		a := &s.Adapters[i]
		f.field("", a.Address+"  "+a.ID+"  "+adapterModules(a), bad, 1)
	}
	if more := len(s.Adapters) - adapterRows; more > 0 {
		f.field("", fmt.Sprintf("and %d more", more), plain, 1)
	}
}

func adapterModules(a *status.Adapter) string {
	switch {
	case len(a.Missing) > 0:
		return "needs " + strings.Join(a.Missing, ", ")
	case len(a.Present) > 0:
		return strings.Join(a.Present, ", ") + " did not bind"
	}
	return "unknown to this kernel"
}

func linkStyle(l *status.Link) style {
	if len(l.Addresses) > 0 {
		return plain
	}
	return hint
}

func linkText(l *status.Link) string {
	var parts []string
	for _, a := range l.Addresses {
		parts = append(parts, a.String())
	}
	if len(parts) == 0 {
		trouble := "no address yet"
		if l.Trouble != "" {
			trouble += " (" + l.Trouble + ")"
		}
		parts = append(parts, trouble)
	}
	if speed := l.SpeedText(); speed != "" {
		parts = append(parts, speed)
	}
	if port := l.Port(); port != "" {
		parts = append(parts, "at "+port)
	}
	return strings.Join(parts, ", ")
}

func (f *Frame) command(s *status.State) {
	c := &s.Command
	if c.Name == "" {
		return
	}
	text := c.Name
	if c.Step != "" {
		text += " " + c.Step
	}
	look := strong
	switch {
	case c.Ended.IsZero():
		text += ", since " + clock(c.Started)
	case c.Failed:
		text += ", failed at " + clock(c.Ended)
		look = bad
	default:
		text += ", done at " + clock(c.Ended)
		look = plain
	}
	f.field("Command", text, look, 2)
	for i := range s.Work[:min(len(s.Work), workRows)] {
		f.progress(&s.Work[i])
	}
	if more := len(s.Work) - workRows; more > 0 {
		f.field("", fmt.Sprintf("and %d more", more), plain, 1)
	}
}

// progress adds two rows: the work, and a progress bar. Of work whose extent is unknown it adds one.
func (f *Frame) progress(p *status.Progress) {
	text := p.What + " " + p.Device
	if p.Phase != "" {
		text += ", " + p.Phase
	}
	if p.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", p.Attempt)
	}
	f.field("", text, plain, 1)
	percent, known := p.Percent()
	if p.Parts && !known {
		return
	}
	behind := fmt.Sprintf("%d MiB", p.Done>>20)
	if known {
		behind = fmt.Sprintf("%3d %%", percent)
	}
	if p.Rate > 0 && !p.Parts {
		behind += "  " + p.RateText()
	}
	if left, ok := p.Left(); ok {
		behind += "  " + leftText(left) + " left"
	}
	if !known {
		f.field("", behind, plain, 1)
		return
	}
	cells := max(f.width-labels-36, 10)
	full := cells * percent / 100
	f.field("", "["+strings.Repeat("#", full)+strings.Repeat("-", cells-full)+"] "+behind, strong, 1)
}

// leftText formats a remaining time, without seconds from one hour on.
func leftText(left time.Duration) string {
	if left < time.Hour {
		return left.String()
	}
	return fmt.Sprintf("%dh%02dm", int(left.Hours()), int(left.Minutes())%60)
}

func (f *Frame) trouble(s *status.State) {
	for _, p := range slices.Backward(s.Problems[max(0, len(s.Problems)-2):]) {
		f.field("Problem", p.Text, bad, problemRows)
	}
	name := "To do"
	for _, advice := range s.Advice() {
		f.field(name, advice, hint, adviceRows)
		name = ""
	}
}

// log fills the rest of the screen with the last lines of the log, which are cut, not wrapped.
func (f *Frame) log(lines []string) {
	space := f.height - len(f.rows) - 1
	if space < 1 || len(lines) == 0 {
		return
	}
	f.add(span{label, strings.Repeat("-", f.width)})
	for _, line := range lines[max(0, len(lines)-space):] {
		f.add(span{plain, cut(ascii(line), f.width)})
	}
}

// ascii replaces everything but printable ASCII.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r > '~':
			return '?'
		}
		return r
	}, text)
}

// cut shortens a text to a number of cells.
func cut(text string, cells int) string {
	switch {
	case len(text) <= cells:
		return text
	case cells <= 3:
		return text[:max(cells, 0)]
	}
	return text[:cells-3] + "..."
}

// wrap breaks a text at spaces into a limited number of lines and cells per line.
func wrap(text string, cells, limit int) []string {
	var lines []string
	for len(lines) < limit-1 && len(text) > cells {
		at := strings.LastIndex(text[:cells+1], " ")
		rest := at + 1
		if at <= 0 { // a word that is longer than a line
			at, rest = cells, cells
		}
		lines = append(lines, strings.TrimRight(text[:at], " "))
		text = strings.TrimLeft(text[rest:], " ")
	}
	return append(lines, cut(text, cells))
}
