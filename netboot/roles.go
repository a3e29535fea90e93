//go:build linux

package netboot

import (
	"context"
	"net"
	"reflect"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/netboot/bond"
	"ironroot/netboot/listing"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/plan"
)

// assignment is a link with its present role. It belongs to the watcher.
type assignment struct {
	link   *link
	card   net.HardwareAddr // the link's permanent MAC address
	id     string           // in the static data; "" = not named
	role   plan.Role
	cancel context.CancelFunc // ends the role; nil before the first one
	ended  chan struct{}      // closed when the role has ended
}

// is reports whether the link has a role already.
func (a *assignment) is(id string, r plan.Role) bool {
	return a.cancel != nil && a.id == id && reflect.DeepEqual(a.role, r)
}

// start runs the link in a role after it left the one before. A role that is replaced before that does not run.
func (a *assignment) start(ctx context.Context, id string, r plan.Role, running *goroutine.Group) {
	l, previous := a.link, a.ended
	if a.cancel != nil {
		a.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	a.cancel, a.ended, a.id, a.role = cancel, ended, id, r
	l.Change(func(s *state) {
		s.order = r.Order()
		s.link.Bond, s.link.Static = r.Bond, len(r.Static.Addresses) > 0
	})
	running.Go(func() error {
		defer close(ended)
		defer cancel()
		if previous != nil {
			<-previous
			if ctx.Err() != nil {
				return nil
			}
			l.leave()
		}
		l.persist(ctx, func() { l.run(ctx, r) })
		return nil
	})
}

// end ends the role and then the link.
func (a *assignment) end(running *goroutine.Group) {
	if a.cancel == nil {
		a.link.End()
		return
	}
	a.cancel()
	running.Go(func() error {
		<-a.ended
		a.link.End()
		return nil
	})
}

// useData makes a plan of static data and applies it.
func (w *watcher) useData(ctx context.Context, data *networkdata.Data) {
	before := w.plan
	w.waiting = nil
	w.plan, w.cardsDue = plan.New(data), time.After(w.timing.cardWait)
	w.names.setCommon(w.plan.Names())
	w.names.write()
	for _, l := range before.BondsMissingIn(w.plan) {
		name := before.BondName(l.ID)
		if err := bond.Remove(name); err != nil {
			w.log.Debug("bond not removed", "interface", name, "err", err)
		}
	}
	for _, l := range w.plan.BondsMissingIn(before) {
		name := w.plan.BondName(l.ID)
		w.running.Go(func() error {
			makeBond(ctx, w.shared, l, name)
			return nil
		})
	}
	w.reassign(ctx)
}

// logAbsentCards logs the network cards of the static data that the machine does not have.
func (w *watcher) logAbsentCards() {
	for _, l := range w.plan.MissingCards(idsOf(w.used)) {
		w.log.Warn("network card of the network data not found", "link", l.ID, "name", l.Name, "mac", l.MAC.String(),
			"waited", w.timing.cardWait)
	}
}

// reassign checks the roles of all links again.
func (w *watcher) reassign(ctx context.Context) {
	links, err := listing.Links()
	if err != nil {
		w.log.Error("links not listed", "err", err)
		return
	}
	for _, l := range links {
		w.linkChanged(ctx, l)
	}
}

// roleOf returns the role of a link; id is Plan.ID's.
func (w *watcher) roleOf(l *link, id string) plan.Role {
	switch {
	case id != "":
		return w.plan.Role(id)
	case w.plan == nil && w.waiting != nil && !l.virtual:
		return plan.Role{Wait: true}
	case l.virtual && !w.vlans.Created(l.name()):
		return plan.Role{} // of a former plan
	}
	return plan.DefaultRole()
}

// idsOf returns the ids of the links in use in the static data by their kernel indices.
func idsOf(used map[int]*assignment) map[int]string {
	ids := map[int]string{}
	for index, a := range used {
		ids[index] = a.id
	}
	return ids
}
