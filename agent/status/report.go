package status

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"ironroot/netboot/snapshot"
)

const (
	// firstReport is the time without contact to Ironic after which the node logs what it has tried. The interval of
	// further reports doubles up to maxReportInterval.
	firstReport       = 10 * time.Second
	maxReportInterval = 5 * time.Minute
)

// Reporter logs what a node without contact to Ironic has tried.
type Reporter struct {
	Board *Board
	Log   *slog.Logger
}

// Run logs reports until ctx ends.
func (r Reporter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := r.Board.Changed()
		if r.Board.State().Alone() {
			r.whileAlone(ctx)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// whileAlone logs reports at increasing intervals until the node has contact to Ironic.
func (r Reporter) whileAlone(ctx context.Context) {
	began := time.Now()
	wait := firstReport
	due := time.After(wait)
	for {
		changed := r.Board.Changed()
		s := r.Board.State()
		if !s.Alone() {
			return
		}
		select {
		case <-changed:
			continue
		case <-due:
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, maxReportInterval)
		r.report(s, time.Since(began), wait)
		due = time.After(wait)
	}
}

func (r Reporter) report(s *State, waited, next time.Duration) {
	r.Log.Warn("not in touch with Ironic", "doing", s.Doing(), "duration", waited.Round(time.Second),
		"next_report", next)
	for _, line := range s.linkReport(time.Now()) {
		r.Log.Warn("tried: " + r.Board.line(line))
	}
	if len(s.DNS) > 0 {
		r.Log.Warn("tried: name servers " + strings.Join(s.DNS, ", "))
	}
	for i := range s.APIs {
		r.Log.Warn("tried: Ironic", "url", s.APIs[i].URL, "result", s.APIs[i].Result())
	}
	for _, p := range s.Problems {
		r.Log.Warn("problem", "source", p.Source, "err", p.Text)
	}
	for _, advice := range s.Advice() {
		r.Log.Warn("what to do: " + advice)
	}
}

// linkReport returns what was tried on each link, and one line for all links without carrier.
func (s *State) linkReport(now time.Time) []string {
	var disconnected []string
	var connected []snapshot.Link
	for i := range s.links {
		if s.links[i].Carrier {
			connected = append(connected, s.links[i])
		} else {
			disconnected = append(disconnected, s.links[i].Name)
		}
	}
	var lines []string
	if len(connected) > 0 || len(disconnected) == 0 {
		lines = snapshot.Report(connected, now)
	}
	if len(disconnected) > 0 {
		lines = append(lines, "no carrier on "+strings.Join(disconnected, ", "))
	}
	return lines
}

// SpeedText returns the link's speed with its unit, "" if it is unknown.
func (l *Link) SpeedText() string {
	switch {
	case l.Speed <= 0:
		return ""
	case l.Speed >= 1000 && l.Speed%1000 == 0:
		return strconv.Itoa(l.Speed/1000) + " Gbit/s"
	case l.Speed == 2500:
		return "2.5 Gbit/s"
	}
	return strconv.Itoa(l.Speed) + " Mbit/s"
}

// Port returns the switch port at the other end of the link, as announced by LLDP, "" if unknown.
func (l *Link) Port() string {
	n := l.Neighbour
	switch {
	case n.Port != "" && n.System != "":
		return n.System + " port " + n.Port
	case n.Port != "":
		return "port " + n.Port
	}
	return n.System
}

// Result describes the result of the latest request.
func (a *API) Result() string {
	switch {
	case a.Tried.IsZero():
		return "not tried yet"
	case a.Trouble == "":
		return "answers"
	}
	return a.Trouble
}

// maxAdvice limits the number of suggestions.
const maxAdvice = 4

// Advice returns suggestions for all problems, the most likely cause first.
func (s *State) Advice() []string {
	var list []string
	add := func(text string) {
		if text != "" && len(list) < maxAdvice && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	if s.Phase != Lockdown && s.Alone() {
		s.networkAdvice(add)
	}
	for _, a := range s.APIs {
		add(a.Advice)
	}
	for _, p := range slices.Backward(s.Problems) {
		add(p.Advice)
	}
	return list
}

// networkAdvice adds suggestions for a node without an address, from the cable to the DHCP server.
func (s *State) networkAdvice(add func(string)) {
	connected := 0
	for i := range s.Links {
		if len(s.Links[i].Addresses) > 0 {
			return // the node has an address
		}
		if s.Links[i].Carrier {
			connected++
		}
	}
	for i := range s.Adapters {
		add(s.Adapters[i].advice())
	}
	switch {
	case len(s.Adapters) > 0 && len(s.Links) == 0:
	case len(s.Links) == 0 && s.Phase == Network:
		add("no network card found: check that the ramdisk contains its driver, and that the firmware's " +
			"setup enables it")
	case len(s.Links) > 0 && connected == 0:
		add("no carrier on any link: check cables, transceivers and whether the switch ports are enabled")
	}
	for i := range s.Links {
		if s.Links[i].Carrier {
			s.Links[i].advice(add)
		}
	}
}

// advice adds suggestions for a link with carrier but without an address.
func (l *Link) advice(add func(string)) {
	where := "its switch port"
	if port := l.Port(); port != "" {
		where = port
	}
	add("no DHCP reply on " + l.Name + ": check that the provisioning VLAN is untagged on " + where +
		", and that the DHCP server has a range for it")
	if len(l.VLANs) > 0 {
		add("the switch announces the VLANs " + numbers(l.VLANs) + " on " + l.Name +
			": if the provisioning network is a tagged one of them, boot with ipa-enable-vlan-interfaces=" + l.Name)
	}
}

func numbers(list []int) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}
