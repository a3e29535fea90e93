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
	// Timeout limits the wait for the nodes that pair at the same time, and then that for a partner. A lost connection
	// does not extend it.
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
// both have left. A node's entries disappear with its session, so that a node that crashes blocks others for the
// session's time only. A partner that disappears and one that leaves look the same: this node notices it when it
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
	lock, err := p.begin(ctx)
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

// begin creates the group if there is none, waits for the lock and returns the path of this contender.
func (p *pairing) begin(ctx context.Context) (lock string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	for _, path := range []string{root, root + "/" + locks, groupLock, p.group} {
		_, err := retry(ctx, p.session, func() (string, error) { return p.conn.Create(path, nil, 0, p.acl) })
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", fmt.Errorf("create %s: %w", path, err)
		}
	}
	p.log.Info("waiting for the lock of network pairing", "group", p.o.Group, "member", p.member)
	return p.lock(ctx)
}

// find joins the group, finds the partner and leaves. It releases the lock.
func (p *pairing) find(ctx context.Context, lock string) (Partner, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	// The entries of an earlier session of this node expire, as does a node that has crashed.
	before, err := p.waitMembers(ctx, func(members []string) bool {
		return len(members) < 2 && !slices.Contains(members, p.member)
	}, "members left behind")
	if err != nil {
		return Partner{}, err
	}
	own := p.group + "/" + p.member
	if err := p.join(ctx, own); err != nil {
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

// join creates the node of this member. One that this session has created already, in an attempt whose answer was
// lost, is no error.
func (p *pairing) join(ctx context.Context, own string) error {
	noCapabilities := []byte{0xc0} // nil in MessagePack
	_, err := retry(ctx, p.session, func() (struct{}, error) {
		_, err := p.conn.Create(own, noCapabilities, zk.FlagEphemeral, p.acl)
		if !errors.Is(err, zk.ErrNodeExists) {
			return struct{}{}, err
		}
		exists, stat, readErr := p.conn.Exists(own)
		if readErr != nil {
			return struct{}{}, readErr
		}
		if exists && stat.EphemeralOwner == p.conn.SessionID() {
			return struct{}{}, nil
		}
		return struct{}{}, err
	})
	return err
}

// remove deletes a node of this session. In a further attempt, a node that does not exist is no error: the answer to an
// earlier one was lost.
func (p *pairing) remove(ctx context.Context, path string) error {
	attempted := false
	_, err := retry(ctx, p.session, func() (struct{}, error) {
		err := p.conn.Delete(path, -1)
		if attempted && errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		attempted = true
		return struct{}{}, err
	})
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
		err = p.timedOut(p.o.Timeout, reason, "members are "+strings.Join(members, ", "))
	}
	return members, err
}
