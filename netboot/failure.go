package netboot

import (
	"slices"
	"time"
)

// part is what of a link can fail by itself.
type part int

const (
	partLink  part = iota // the interface
	partDHCP              // DHCPv4
	partDHCP6             // DHCPv6
	parts
)

// fail notes and logs what went wrong with a part of the link; nil notes that all is well with it again. On a link that
// works by the other family of addresses a protocol without an answer is no warning.
func (l *link) fail(p part, message string, err error) {
	n := l.network
	works := false
	n.update(func() {
		l.failed[p] = err
		works = l.failure() == nil
		if err != nil {
			l.state.History.LastErr, l.state.History.LastErrAt = err, time.Now()
		}
	})
	switch {
	case err == nil:
	case works:
		n.log.Info(message, "interface", l.name(), "err", err)
	default:
		n.log.Warn(message, "interface", l.name(), "err", err)
	}
}

// failure is what keeps the link from being of use; network.mu is held. An address of one family makes up for the
// failure of the other one's protocol.
func (l *link) failure() error {
	var has4, has6 bool
	for prefix := range l.network.addresses[l.index] {
		if usable(prefix) && !slices.Contains(l.coming, prefix) {
			has4, has6 = has4 || prefix.Addr().Is4(), has6 || prefix.Addr().Is6()
		}
	}
	switch {
	case l.failed[partLink] != nil:
		return l.failed[partLink]
	case l.failed[partDHCP] != nil && !has6:
		return l.failed[partDHCP]
	case l.failed[partDHCP6] != nil && !has4:
		return l.failed[partDHCP6]
	}
	return nil
}

// sent counts a message of a search that began at started.
func (l *link) sent(a *Attempts, started time.Time) {
	l.network.update(func() {
		if !a.Since.Equal(started) {
			*a = Attempts{Since: started}
		}
		a.Sent++
	})
}

// rejected notes why an answer is not used.
func (l *link) rejected(a *Attempts, why error) {
	l.network.update(func() { a.Rejected = why.Error() })
}
