package tooz

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
)

// Files of Debian's packages libzookeeper-java and python3-tooz.
const (
	jar          = "/usr/share/java/zookeeper.jar"
	debianPython = "/usr/bin/python3"
	library      = "/usr/lib/python3/dist-packages/tooz/__init__.py"
)

// testLimit ends what waits forever after a failure.
const testLimit = 5 * time.Minute

// server starts Debian's ZooKeeper on the loopback interface and returns its address. The context ends when the server
// ends, and after testLimit.
func server(t *testing.T) (ctx context.Context, address string) {
	t.Helper()
	testenv.Linux(t, "ZooKeeper")
	testenv.Programs(t, "java")
	testenv.Files(t, "Debian's packages libzookeeper-java and python3-tooz", jar, debianPython, library)
	port := strconv.Itoa(testenv.Port(t))
	var log bytes.Buffer
	c := exec.Command("java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64", // KiB; 64 MiB are the default
		"-cp", jar, "org.apache.zookeeper.server.ZooKeeperServerMain", port, t.TempDir())
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	limited, stop := context.WithTimeout(t.Context(), testLimit)
	ctx, cancel := context.WithCancelCause(limited)
	var wait sync.WaitGroup
	wait.Go(func() { cancel(errors.Join(errors.New("ZooKeeper has ended"), c.Wait())) })
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		wait.Wait()
		stop()
		if t.Failed() {
			t.Logf("ZooKeeper: %s", log.String())
		}
	})
	// A session is there as soon as the server is ready. One that is starting may never answer to a connection.
	address = "127.0.0.1:" + port
	for ready := false; !ready; {
		s, err := connect(ctx, slog.New(slog.DiscardHandler), backend(t, address+"?timeout=30"))
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		if ready = err == nil; ready {
			s.close()
		}
	}
	return ctx, address
}

// together calls functions concurrently. The first error ends the context of all, and fails the test when they have
// returned.
func together(ctx context.Context, t *testing.T, functions ...func(context.Context) error) {
	t.Helper()
	group, ctx := goroutine.WithContext(ctx)
	for _, f := range functions {
		group.Go(func() error { return f(ctx) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func backend(t *testing.T, where string) *Backend {
	t.Helper()
	b, err := ParseURL("zookeeper://" + where)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// node is one that pairs. On a busy machine, its session must not expire.
func node(t *testing.T, where, group, member string) Options {
	t.Helper()
	if !strings.Contains(where, "?") {
		where += "?timeout=60"
	}
	return Options{Backend: backend(t, where), Group: group, Member: member, Timeout: 5 * time.Minute}
}

func pairNode(ctx context.Context, o Options) (Partner, error) {
	return Pair(ctx, slog.New(slog.DiscardHandler), o)
}

// pairWith pairs a node and returns an error unless the partner is as wanted.
func pairWith(ctx context.Context, o Options, want Partner) error {
	got, err := pairNode(ctx, o)
	if err == nil && got != want {
		err = fmt.Errorf("%s: got partner %+v, want %+v", o.Member, got, want)
	}
	return err
}

// python is a node with tooz.
type python struct {
	cmd *exec.Cmd
	out *bufio.Scanner
	err bytes.Buffer
}

// startPython starts one. It waits for a session as long as the server needs.
func startPython(ctx context.Context, t *testing.T, where, group, member string) (*python, error) {
	t.Helper()
	p := &python{cmd: exec.CommandContext(ctx, debianPython, "testdata/partner.py",
		"zookeeper://"+where+"?timeout=60", group, member, "300")}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = &p.err
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	})
	return p, nil
}

// wantLine returns an error unless a line is the next that it prints. The partner ends with the context.
func (p *python) wantLine(ctx context.Context, want string) error {
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	defer stop()
	if !p.out.Scan() {
		err := p.cmd.Wait()
		return errors.Join(errors.New("partner has ended: "+p.err.String()), err)
	}
	if got := p.out.Text(); got != want {
		return fmt.Errorf("partner has printed %q, want %q", got, want)
	}
	return nil
}

// watcher is a client that looks at the server's nodes.
func watcher(ctx context.Context, t *testing.T, where string) *session {
	t.Helper()
	s, err := connect(ctx, slog.New(slog.DiscardHandler), backend(t, where+"?timeout=60"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// waitChildren waits until a node has so many children.
func waitChildren(ctx context.Context, s *session, path string, count int) error {
	err := s.watch(ctx, func() (bool, <-chan zk.Event, error) {
		exists, _, events, err := s.conn.ExistsW(path)
		if err != nil || !exists {
			return false, events, err
		}
		children, _, events, err := s.conn.ChildrenW(path)
		return len(children) == count, events, err
	})
	if err != nil {
		return fmt.Errorf("wait for %d children of %s: %w", count, path, err)
	}
	return nil
}

// mustHaveChildren is waitChildren, and fails the test.
func mustHaveChildren(ctx context.Context, t *testing.T, s *session, path string, count int) {
	t.Helper()
	if err := waitChildren(ctx, s, path, count); err != nil {
		t.Fatal(err)
	}
}

// Nodes with the Python library tooz are partners, whoever comes first. The group need not exist, and nothing is left
// in it.
//
// Parity: P9 (pairing with tooz)
func TestPairWithTooz(t *testing.T) {
	ctx, where := server(t)
	look := watcher(ctx, t, where)
	first, err := startPython(ctx, t, where, "group", "python")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.wantLine(ctx, "joined"); err != nil {
		t.Fatal(err)
	}
	together(ctx, t,
		func(ctx context.Context) error {
			return pairWith(ctx, node(t, where, "group", "go"), Partner{Name: "python"})
		},
		func(ctx context.Context) error { return first.wantLine(ctx, "writer go") },
	)
	mustHaveChildren(ctx, t, look, root+"/group", 0)
	together(ctx, t,
		func(ctx context.Context) error {
			return pairWith(ctx, node(t, where, "group", "go"), Partner{Name: "python", First: true})
		},
		func(ctx context.Context) error {
			if err := waitChildren(ctx, look, root+"/group", 1); err != nil {
				return err
			}
			second, err := startPython(ctx, t, where, "group", "python")
			if err != nil {
				return err
			}
			return errors.Join(second.wantLine(ctx, "joined"), second.wantLine(ctx, "reader go"))
		},
	)
	mustHaveChildren(ctx, t, look, root+"/group", 0)
	mustHaveChildren(ctx, t, look, groupLock, 0)
}

// Several nodes that come at the same time make pairs. Their names are their addresses unless they are set.
func TestPairs(t *testing.T) {
	ctx, where := server(t)
	const count = 6
	var partners [count]Partner
	var calls []func(context.Context) error
	for i := range count {
		calls = append(calls, func(ctx context.Context) (err error) {
			partners[i], err = pairNode(ctx, node(t, where, "group", fmt.Sprint(i)))
			return err
		})
	}
	together(ctx, t, calls...)
	firsts := 0
	for i, p := range partners {
		partner, err := strconv.Atoi(p.Name)
		if err != nil || partner == i || partners[partner].Name != fmt.Sprint(i) || partners[partner].First == p.First {
			t.Errorf("got %+v, want three pairs", partners)
		}
		if p.First {
			firsts++
		}
	}
	if firsts != count/2 {
		t.Errorf("got %+v, want one first of each pair", partners)
	}
	o := node(t, where, "group", "")
	var other, self Partner
	together(ctx, t,
		func(ctx context.Context) (err error) { self, err = pairNode(ctx, o); return err },
		func(ctx context.Context) (err error) {
			other, err = pairNode(ctx, node(t, where, "group", "other"))
			return err
		},
	)
	if other.Name != "127.0.0.1" || self.Name != "other" {
		t.Errorf("got %+v and %+v, want a node that is called 127.0.0.1", self, other)
	}
}

// A node waits no longer than the timeout for a partner, for members that were left behind, and for the lock. It
// leaves nothing.
func TestPairTimeout(t *testing.T) {
	ctx, where := server(t)
	look := watcher(ctx, t, where)
	alone := node(t, where, "group", "alone")
	alone.Timeout = 3 * time.Second
	if _, err := pairNode(ctx, alone); err == nil ||
		err.Error() != "group group: no other node has joined within 3s: members are alone" {
		t.Fatalf("alone: got %v", err)
	}
	mustHaveChildren(ctx, t, look, root+"/group", 0)
	mustHaveChildren(ctx, t, look, groupLock, 0)
	// Another node with the name of this one never leaves.
	left := root + "/group/alone"
	if _, err := look.conn.Create(left, nil, 0, look.acl); err != nil {
		t.Fatal(err)
	}
	if _, err := pairNode(ctx, alone); err == nil ||
		err.Error() != "group group: members left behind within 3s: members are alone" {
		t.Fatalf("same name: got %v", err)
	}
	// A partner never leaves.
	other := alone
	other.Member = "other"
	if _, err := pairNode(ctx, other); err == nil || !strings.HasPrefix(err.Error(),
		"group group: partner has not left within 3s: members are ") {
		t.Fatalf("partner: got %v", err)
	}
	mustHaveChildren(ctx, t, look, root+"/group", 1)
	// Another contender has the lock.
	if _, err := look.conn.Create(groupLock+"/x"+lockName, []byte("holder"), zk.FlagSequence, look.acl); err != nil {
		t.Fatal(err)
	}
	if _, err := pairNode(ctx, other); err == nil ||
		err.Error() != `lock `+groupLock+`: not acquired within 3s: "holder" is before this node` {
		t.Fatalf("lock: got %v", err)
	}
	mustHaveChildren(ctx, t, look, groupLock, 1)
}

// A node that crashes while it waits for a partner or has the lock blocks others until its session expires. The entries
// that this node has left behind itself expire, too.
func TestPairAfterCrash(t *testing.T) {
	ctx, where := server(t)
	look := watcher(ctx, t, where)
	create := func(s *session, path, data string, flags int32) {
		t.Helper()
		if _, err := s.conn.Create(path, []byte(data), flags, s.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	for _, path := range []string{root, root + "/" + locks, groupLock, root + "/group"} {
		create(look, path, "", 0)
	}
	dead, err := connect(ctx, slog.New(slog.DiscardHandler), backend(t, where))
	if err != nil {
		t.Fatal(err)
	}
	create(dead, root+"/group/go", "", zk.FlagEphemeral)
	create(dead, groupLock+"/y"+lockName, "go", zk.FlagEphemeral|zk.FlagSequence)
	together(ctx, t,
		func(ctx context.Context) error {
			return pairWith(ctx, node(t, where, "group", "go"), Partner{Name: "other", First: true})
		},
		func(ctx context.Context) error {
			if err := waitChildren(ctx, look, groupLock, 2); err != nil {
				return err
			}
			dead.close()
			if err := waitChildren(ctx, look, groupLock, 0); err != nil {
				return err
			}
			return pairWith(ctx, node(t, where, "group", "other"), Partner{Name: "go"})
		},
	)
}

// A node whose session expires while it waits for a partner ends with an error: its nodes are gone, so that no partner
// can find it.
func TestPairSessionExpires(t *testing.T) {
	ctx, where := server(t)
	look := watcher(ctx, t, where)
	cut := newRelay(t, where)
	waiting := make(chan struct{}, 1)
	log := slog.New(slog.NewTextHandler(lines(func(line string) {
		if strings.Contains(line, "waiting for a network partner") {
			waiting <- struct{}{}
		}
	}), nil))
	together(ctx, t,
		func(ctx context.Context) error {
			_, err := Pair(ctx, log, node(t, cut.address+"?timeout=10", "group", "go"))
			if !errors.Is(err, errExpired) && !errors.Is(err, zk.ErrSessionExpired) {
				return fmt.Errorf("got %w, want %w", err, errExpired)
			}
			return nil
		},
		func(ctx context.Context) error {
			select {
			case <-waiting:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			cut.set(true)
			err := waitChildren(ctx, look, root+"/group", 0) // the server has ended the session
			cut.set(false)                                   // the node learns it from the server
			return err
		},
	)
}

// A node whose connection is lost goes on within its session, whichever request is lost: before or after the server has
// carried it out, or after its answer.
func TestPairLostConnection(t *testing.T) {
	const user = "me:password@"
	ctx, where := server(t)
	look := watcher(ctx, t, user+where)
	for _, path := range []string{root, root + "/" + locks, groupLock} {
		if _, err := look.conn.Create(path, nil, 0, look.acl); err != nil {
			t.Fatal(err)
		}
	}
	cut := newRelay(t, where)
	for name, loss := range map[string]fate{
		"request": requestLost, "answer": answerLost, "connection": lostAfter,
	} {
		count := 0 // of requests in a pairing without a loss
		for lose, lost := 1, true; lost; lose++ {
			count, lost = 0, false
			cut.onRequest(func(code int32) fate {
				if slices.Contains([]int32{closeRequest, pingRequest, setWatchesRequest}, code) {
					return passed
				}
				if count++; count != lose {
					return passed
				}
				lost = true
				return loss
			})
			group := fmt.Sprintf("%s-%d", name, lose)
			// With a second server, the client connects again without a pause.
			first := node(t, user+cut.address+","+cut.address, group, "go")
			pairBehind(ctx, t, look, first, node(t, user+where, group, "other"))
			cut.onRequest(nil)
		}
		if count < 12 {
			t.Errorf("%s: got %d requests, want at least 12", name, count)
		}
	}
}

// pairBehind pairs a node, which waits for the lock of another contender first, with a second node.
func pairBehind(ctx context.Context, t *testing.T, look *session, first, second Options) {
	t.Helper()
	first.Timeout, second.Timeout = time.Minute, time.Minute
	holder, err := look.conn.Create(groupLock+"/x"+lockName, nil, zk.FlagSequence, look.acl)
	if err != nil {
		t.Fatal(err)
	}
	together(ctx, t,
		func(ctx context.Context) error {
			return pairWith(ctx, first, Partner{Name: second.Member, First: true})
		},
		func(ctx context.Context) error {
			if err := waitChildren(ctx, look, groupLock, 2); err != nil {
				return err
			}
			if err := look.conn.Delete(holder, -1); err != nil {
				return err
			}
			if err := waitChildren(ctx, look, root+"/"+first.Group, 1); err != nil {
				return err
			}
			return pairWith(ctx, second, Partner{Name: first.Member})
		},
	)
	mustHaveChildren(ctx, t, look, root+"/"+first.Group, 0)
	mustHaveChildren(ctx, t, look, groupLock, 0)
}

// A connection that is lost for good ends the wait after the timeout.
func TestPairServerLost(t *testing.T) {
	ctx, where := server(t)
	cut := newRelay(t, where)
	cut.onRequest(func(int32) fate { cut.cut = true; return requestLost })
	o := node(t, cut.address, "group", "go")
	o.Timeout = 5 * time.Second // enough to lose the first request on a busy machine
	_, err := pairNode(ctx, o)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "create "+root+": ") ||
		!errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer) {
		t.Errorf("got %v, want %v with the reason", err, context.DeadlineExceeded)
	}
	var lost *loss
	if !errors.As(err, &lost) || lost.server != cut.address {
		t.Errorf("got %v, want the loss of %s", err, cut.address)
	}
}

// A node that waits for a partner when its time limit is reached, without a connection, says that the connection was
// lost, to which server, and since when: nobody knows whether another node has joined. The same holds for the lock.
func TestPairServerLostWhileWaiting(t *testing.T) {
	ctx, where := server(t)
	look := watcher(ctx, t, where)
	for _, tt := range []struct {
		name, waiting, want string
		request             int32 // after whose answer the connection is lost
	}{
		{
			"partner", "waiting for a network partner",
			"; before: no other node has joined: members are go", getChildrenRequest,
		},
		{
			"lock", "waiting for the lock of network pairing",
			`; before: not acquired: "holder" is before this node`, getDataRequest,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cut := newRelay(t, where)
			if tt.name == "lock" {
				path := groupLock + "/x" + lockName
				if _, err := look.conn.Create(path, []byte("holder"), zk.FlagSequence, look.acl); err != nil {
					t.Fatal(err)
				}
			}
			var waits atomic.Bool
			cut.onRequest(func(code int32) fate {
				if code != tt.request || !waits.Load() {
					return passed
				}
				cut.cut = true
				return lostAfter
			})
			limited, reach := context.WithCancelCause(ctx)
			defer reach(nil)
			started := time.Now()
			log := slog.New(slog.NewTextHandler(lines(func(line string) {
				switch {
				case strings.Contains(line, tt.waiting):
					waits.Store(true)
				case strings.Contains(line, `msg="connection to ZooKeeper lost" server=`+cut.address):
					reach(context.DeadlineExceeded)
				}
			}), nil))
			_, err := Pair(limited, log, node(t, cut.address+"?timeout=60", "group", "go"))
			var lost *loss
			if !errors.As(err, &lost) || lost.server != cut.address || lost.since.Before(started) ||
				lost.since.After(time.Now()) {
				t.Fatalf("got %v, want the loss of %s", err, cut.address)
			}
			text := fmt.Sprintf("connection to ZooKeeper %s was lost at %s, ", cut.address,
				lost.since.UTC().Format(time.RFC3339))
			if !strings.Contains(err.Error(), text) || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %v, want %q and %q", err, text, tt.want)
			}
		})
	}
}

// Errors of a connection, also of writing, mean that it was lost. Others do not.
func TestIsLost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	_, closed := c.Write([]byte{0})
	for _, lost := range []error{closed, zk.ErrConnectionClosed, zk.ErrNoServer} {
		if !isLost(lost) {
			t.Errorf("%v: is not lost", lost)
		}
	}
	for _, other := range []error{nil, zk.ErrNoNode, zk.ErrNoAuth, zk.ErrSessionExpired, context.Canceled} {
		if isLost(other) {
			t.Errorf("%v: is lost", other)
		}
	}
}

// A server that does not answer to the credentials is an error that names it, after the session's time.
func TestPairSilentAuthentication(t *testing.T) {
	ctx, where := server(t)
	cut := newRelay(t, where)
	cut.onRequest(func(code int32) fate {
		if code == setAuthRequest {
			return dropped
		}
		return passed
	})
	_, err := pairNode(ctx, node(t, "me:pass@"+cut.address+"?timeout=10", "group", "go"))
	want := "authenticate to ZooKeeper " + cut.address + ": no answer within 10s"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// lines is a log that passes each line on.
type lines func(string)

func (l lines) Write(line []byte) (int, error) {
	l(string(line))
	return len(line), nil
}

// fate is the action of a relay on a request.
type fate int

const (
	passed      fate = iota
	dropped          // it does not reach the server
	requestLost      // it does not reach the server, and the connection is closed
	answerLost       // the connection is closed instead of the answer
	lostAfter        // the connection is closed after the answer
)

// Codes of requests.
const (
	closeRequest       = -11
	getDataRequest     = 4
	pingRequest        = 11
	getChildrenRequest = 12
	setAuthRequest     = 100
	setWatchesRequest  = 101
)

// relay is a TCP port that passes connections on to a server.
type relay struct {
	address string

	mu    sync.Mutex
	fate  func(code int32) fate // of a request; nil means passed
	cut   bool                  // connections are closed
	conns map[net.Conn]bool
}

func newRelay(t *testing.T, where string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: l.Addr().String(), conns: map[net.Conn]bool{}}
	var wait sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		r.set(true)
		wait.Wait()
	})
	wait.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", where)
			if err != nil {
				_ = client.Close()
				continue
			}
			if !r.add(client, server) {
				continue
			}
			lost := &lostAnswer{}
			wait.Go(func() { r.requests(server, client, lost); r.close(client, server) })
			wait.Go(func() { lost.answers(client, server); r.close(client, server) })
		}
	})
	return r
}

// onRequest sets the function that decides what happens to each request.
func (r *relay) onRequest(f func(code int32) fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fate = f
}

// fateOf calls the function of onRequest, one call at a time.
func (r *relay) fateOf(code int32) fate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fate == nil {
		return passed
	}
	return r.fate(code)
}

// lostAnswer is the answer at which a connection is closed.
type lostAnswer struct {
	number atomic.Uint32 // of the request, 0 for none
	pass   atomic.Bool   // whether the answer is passed on before
}

// requests passes on what a client sends: a request for a session, and then others, each with number and code.
func (r *relay) requests(server io.Writer, client io.Reader, lost *lostAnswer) {
	for first := true; ; first = false {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		next := passed
		if !first {
			next = r.fateOf(int32(binary.BigEndian.Uint32(packet[8:])))
		}
		switch next {
		case dropped:
			continue
		case requestLost:
			return
		case answerLost, lostAfter:
			lost.pass.Store(next == lostAfter)
			lost.number.Store(binary.BigEndian.Uint32(packet[4:]))
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
	}
}

// answers passes on what a server sends, up to the lost answer.
func (l *lostAnswer) answers(client io.Writer, server io.Reader) {
	for {
		packet, err := readPacket(server)
		if err != nil {
			return
		}
		number := l.number.Load()
		isLast := number != 0 && binary.BigEndian.Uint32(packet[4:]) == number
		if isLast && !l.pass.Load() {
			return
		}
		if _, err := client.Write(packet); err != nil || isLast {
			return
		}
	}
}

// readPacket reads a packet of ZooKeeper's protocol, which begins with the number of the bytes that follow.
func readPacket(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 8 || n > maxReply {
		return nil, fmt.Errorf("got a packet of %d bytes, want 8 to %d", n, maxReply)
	}
	packet := append(size[:], make([]byte, n)...)
	_, err := io.ReadFull(from, packet[len(size):])
	return packet, err
}

// add keeps connections, unless they are cut.
func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.cut {
			_ = c.Close()
		} else {
			r.conns[c] = true
		}
	}
	return !r.cut
}

func (r *relay) close(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(r.conns, c)
	}
}

// set cuts all connections, or allows new ones.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	for c := range r.conns {
		if cut {
			_ = c.Close()
		}
	}
}

// A cancelled node leaves at once.
func TestPairCancelled(t *testing.T) {
	ctx, where := server(t)
	look := watcher(ctx, t, where)
	stop := errors.New("stopped")
	stoppable, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	together(ctx, t,
		func(context.Context) error {
			o := node(t, where, "group", "go")
			if _, err := Pair(stoppable, slog.New(slog.DiscardHandler), o); !errors.Is(err, stop) {
				return fmt.Errorf("got %w, want %w", err, stop)
			}
			return nil
		},
		func(ctx context.Context) error {
			err := waitChildren(ctx, look, root, 2)
			if err == nil {
				err = waitChildren(ctx, look, root+"/group", 1)
			}
			cancel(stop)
			return err
		},
	)
	mustHaveChildren(ctx, t, look, root+"/group", 0)
}

// A server that does not answer is an error with its address and the reason.
func TestPairServerDown(t *testing.T) {
	where := "127.0.0.1:" + strconv.Itoa(testenv.Port(t))
	ctx := t.Context()
	_, err := pairNode(ctx, node(t, where+"?timeout=1", "group", "go"))
	if err == nil || !strings.Contains(err.Error(), "connect to ZooKeeper "+where+": no session within 1s: ") ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
	if _, err := pairNode(ctx, node(t, "no-such-host.invalid", "group", "go")); err == nil ||
		!strings.Contains(err.Error(), "no-such-host.invalid") {
		t.Errorf("got %v, want an error that names the host", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err = pairNode(ctx, node(t, l.Addr().String()+"?timeout=1", "group", "go")); err == nil ||
		!strings.Contains(err.Error(), "no session within 1s: no answer") {
		t.Errorf("got %v", err)
	}
}

// Nodes that a user has created cannot be read by others.
func TestPairWithUser(t *testing.T) {
	ctx, where := server(t)
	pair := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := pairNode(ctx, node(t, "me:pass%40word@"+where, "group", name))
			return err
		}
	}
	together(ctx, t, pair("a"), pair("b"))
	for _, user := range []string{"", "me:wrong@"} {
		if _, err := pairNode(ctx, node(t, user+where, "group", "c")); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("user %q: got %v, want %v", user, err, zk.ErrNoAuth)
		}
	}
}
