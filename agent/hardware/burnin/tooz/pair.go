package tooz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// Options are the options of [Pair].
type Options struct {
	Backend *Backend
	Group   string
	// Timeout limits the wait for the nodes that pair at the same time, and then that for a partner.
	Timeout time.Duration
	// Member is the name of this node in the group, by which the partner connects to it. "" means the address from
	// which it is connected to the backend.
	Member string
}

// Partner is the result of [Pair].
type Partner struct {
	Name  string // name or address
	First bool   // whether this node was the first of the two
}

// Names in the backend.
const (
	root      = "/tooz"
	locks     = "locks"
	groupLock = root + "/" + locks + "/group_lock"
)

// pairing is one run of Pair.
type pairing struct {
	*session
	o      Options
	group  string // path of the group
	member string
}

// Pair joins the group and waits for one other node to join it, or finds the one that waits. Then both leave.
//
// A lock lets one node pair at a time: the first of a pair releases it when it has joined the group, the second when
// both have left. What a node has created disappears with its session, so that a node that crashes blocks others for
// the session's time only. A partner that disappears and one that leaves look the same: this node notices it when it
// connects to the partner.
func Pair(ctx context.Context, log *slog.Logger, o Options) (Partner, error) {
	s, err := connect(ctx, log, o.Backend)
	if err != nil {
		return Partner{}, err
	}
	defer s.close()
	p := &pairing{session: s, o: o, group: root + "/" + o.Group, member: o.Member}
	if p.member == "" {
		p.member = s.localAddress()
	}
	for _, path := range []string{root, root + "/" + locks, groupLock, p.group} {
		_, err := call(ctx, s, func() (string, error) { return s.conn.Create(path, nil, 0, s.acl) })
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return Partner{}, fmt.Errorf("create %s: %w", path, err)
		}
	}
	log.Info("waiting for the lock of network pairing", "group", o.Group, "member", p.member)
	lock, err := p.lock(ctx)
	if err != nil {
		return Partner{}, err
	}
	partner, err := p.find(ctx, lock)
	if err != nil {
		return Partner{}, fmt.Errorf("group %s: %w", o.Group, err)
	}
	log.Info("network partner found", "group", o.Group, "member", p.member, "partner", partner.Name,
		"first", partner.First)
	return partner, nil
}

// find joins the group, finds the partner and leaves. It releases the lock.
func (p *pairing) find(ctx context.Context, lock string) (Partner, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	// What an earlier session of this node left behind expires, as does a node that has crashed.
	before, err := p.waitMembers(ctx, func(members []string) bool {
		return len(members) < 2 && !slices.Contains(members, p.member)
	}, "members left behind")
	if err != nil {
		return Partner{}, err
	}
	own := p.group + "/" + p.member
	noCapabilities := []byte{0xc0} // nil in MessagePack
	_, err = call(ctx, p.session, func() (string, error) {
		return p.conn.Create(own, noCapabilities, zk.FlagEphemeral, p.acl)
	})
	if err != nil {
		return Partner{}, fmt.Errorf("join: create %s: %w", own, err)
	}
	if len(before) == 0 {
		if err := p.remove(ctx, lock); err != nil {
			return Partner{}, err
		}
		p.log.Info("waiting for a network partner", "group", p.o.Group, "timeout", p.o.Timeout)
		joined := func(members []string) bool { return len(members) > 1 }
		now, err := p.waitMembers(ctx, joined, "no other node has joined")
		if err != nil {
			return Partner{}, err
		}
		others := slices.DeleteFunc(now, func(name string) bool { return name == p.member })
		if len(others) != 1 {
			return Partner{}, fmt.Errorf("got members %s, want one other than %s", strings.Join(others, ", "), p.member)
		}
		return Partner{Name: others[0], First: true}, p.remove(ctx, own)
	}
	_, err = p.waitMembers(ctx, func(members []string) bool { return !slices.Contains(members, before[0]) },
		"partner has not left")
	if err != nil {
		return Partner{}, err
	}
	return Partner{Name: before[0]}, errors.Join(p.remove(ctx, own), p.remove(ctx, lock))
}

// remove deletes a node of this session.
func (p *pairing) remove(ctx context.Context, path string) error {
	_, err := call(ctx, p.session, func() (struct{}, error) { return struct{}{}, p.conn.Delete(path, -1) })
	if err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// waitMembers waits until the members of the group are as wanted, and returns them. The reason begins the error of a
// timeout.
func (p *pairing) waitMembers(
	ctx context.Context, wanted func([]string) bool, reason string,
) (members []string, err error) {
	err = p.watch(ctx, func() (bool, <-chan zk.Event, error) {
		var events <-chan zk.Event
		members, _, events, err = p.conn.ChildrenW(p.group)
		return err == nil && wanted(members), events, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s within %v: members are %s", reason, p.o.Timeout, strings.Join(members, ", "))
	}
	return members, err
}
