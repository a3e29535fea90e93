package tooz

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// A lock is compatible with the Python library kazoo. Each contender creates a node below the lock's path: a random
// number, lockName and the sequence number that ZooKeeper adds. The one with the lowest sequence number has the lock.
// Each other watches the one before it.
const (
	lockName       = "__lock__"
	sequenceDigits = 10
)

// lock waits for the lock of pairings and returns the path of this contender. The context ends after p.o.Timeout.
func (p *pairing) lock(ctx context.Context) (own string, err error) {
	if own, err = p.contend(ctx); err != nil {
		return "", err
	}
	for {
		children, err := retry(ctx, p.session, p.contenders)
		if err != nil {
			return "", fmt.Errorf("list contenders of %s: %w", groupLock, err)
		}
		before := predecessor(children, strings.TrimPrefix(own, groupLock+"/"))
		if before == "" {
			return own, nil
		}
		holder := ""
		err = p.watch(ctx, func() (bool, <-chan zk.Event, error) {
			data, _, events, err := p.conn.GetW(groupLock + "/" + before)
			if errors.Is(err, zk.ErrNoNode) {
				return true, nil, nil
			}
			holder = string(data)
			return false, events, err
		})
		if errors.Is(err, context.DeadlineExceeded) {
			err = p.timedOut(p.o.Timeout, "not acquired", fmt.Sprintf("%q is before this node", holder))
		}
		if err != nil {
			return "", fmt.Errorf("lock %s: %w", groupLock, err)
		}
	}
}

// contend creates the node of this contender and returns its path.
func (p *pairing) contend(ctx context.Context) (own string, err error) {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	name := hex.EncodeToString(random[:]) + lockName
	attempted := false
	own, err = retry(ctx, p.session, func() (string, error) {
		if attempted { // a second node would wait forever for one whose name this node does not know
			children, err := p.contenders()
			if err != nil {
				return "", err
			}
			for _, child := range children {
				if strings.HasPrefix(child, name) {
					return groupLock + "/" + child, nil
				}
			}
		}
		attempted = true
		return p.conn.Create(groupLock+"/"+name, []byte(p.member), zk.FlagEphemeral|zk.FlagSequence, p.acl)
	})
	if err != nil {
		return "", fmt.Errorf("create %s: %w", groupLock+"/"+name, err)
	}
	return own, nil
}

// contenders returns the names of all contenders.
func (p *pairing) contenders() ([]string, error) {
	names, _, err := p.conn.Children(groupLock)
	return names, err
}

// predecessor returns the contender before own, "" if own has the lock.
func predecessor(contenders []string, own string) string {
	before, highest := "", ""
	for _, name := range contenders {
		if n := sequence(name); n != "" && n < sequence(own) && n > highest {
			before, highest = name, n
		}
	}
	return before
}

// sequence returns the sequence number of a contender, "" for other nodes.
func sequence(name string) string {
	at := strings.LastIndex(name, lockName)
	if at < 0 {
		return ""
	}
	digits := name[at+len(lockName):]
	if len(digits) != sequenceDigits || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return digits
}
