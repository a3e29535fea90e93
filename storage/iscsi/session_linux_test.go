package iscsi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/pause"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// fakeKernel answers the requests of an Initiator and passes PDUs on, as the kernel's initiator does. It has no disks.
type fakeKernel struct {
	t    *testing.T
	file *os.File

	mu       sync.Mutex
	requests []uint16
	params   map[uint32]string
	conn     net.Conn // of the session
	started  chan struct{}
	fail     map[uint16]int32  // results of requests
	silent   map[uint16]bool   // requests without an answer
	before   map[uint16]func() // called before the answer
}

// newInitiator returns an initiator of a fake kernel. Its log lines are written to the returned buffer.
func newInitiator(t *testing.T) (*Initiator, *fakeKernel, *lockedBuffer) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeKernel{
		t: t, file: os.NewFile(uintptr(pair[1]), "fake"), params: map[uint32]string{}, fail: map[uint16]int32{},
		started: make(chan struct{}, 9),
	}
	s := sysfs.Root{Path: t.TempDir()}
	for _, dir := range []string{"block", "class/scsi_host/host7"} {
		if err := os.MkdirAll(s.Sys(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	log := &lockedBuffer{}
	k := newKernel(pair[0], 0x1234)
	i := &Initiator{kernel: k, o: Options{
		System: s, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		recovery: recoveryTimeout, closing: closeTimeout,
	}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fake.run()
	}()
	t.Cleanup(func() {
		_ = fake.file.Close()
		_ = k.file.Close()
		<-done
		<-k.ended
	})
	return i, fake, log
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (f *fakeKernel) run() {
	buffer := make([]byte, maxMessage)
	for {
		n, err := f.file.Read(buffer)
		if err != nil || n < messageHeader+messageSize {
			return
		}
		f.request(slices.Clone(buffer[messageHeader:n]))
	}
}

// request answers a request.
func (f *fakeKernel) request(body []byte) {
	kind := uint16(binary.NativeEndian.Uint32(body))
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(body[requestAt+4*i:]) }
	if got := binary.NativeEndian.Uint64(body[8:]); got != 0x1234 {
		f.t.Errorf("got handle %#x, want that of the transport", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, kind)
	if before := f.before[kind]; before != nil {
		before()
	}
	answer := slices.Clone(body[:messageSize])
	result := f.fail[kind]
	switch kind {
	case createSession:
		f.send(0, words(eventPDU+5)) // the kernel announces the session to everyone
		copy(answer[answerAt:], words(5, 7))
	case destroySession:
		f.send(0, words(eventPDU+6))
	case bindConnection:
		fd, err := unix.Dup(int(binary.NativeEndian.Uint64(body[requestAt+8:])))
		if err != nil {
			f.t.Error(err)
		}
		file := os.NewFile(uintptr(fd), "tcp")
		conn, err := net.FileConn(file)
		if err = errors.Join(err, file.Close()); err != nil {
			f.t.Error(err)
		}
		f.conn = conn
		go f.receive(conn)
	case setParameter:
		f.params[word(2)] = strings.TrimRight(string(body[messageSize:][:word(3)]), "\x00")
	case startConnection:
		f.started <- struct{}{}
	case stopConnection:
		if f.conn != nil {
			_ = f.conn.Close()
			f.conn = nil
		}
	case sendPDU:
		if f.conn == nil {
			result = -int32(unix.ENOTCONN)
			break
		}
		h := header(body[messageSize:])
		if err := (wire{f.conn, 1}).send(f.t.Context(), h, body[messageSize+headerSize:]); err != nil {
			f.event(eventError, words(5, 0, 1019), nil)
		}
	}
	if kind != createSession && kind != createConnection {
		copy(answer[answerAt:], words(uint32(result)))
	}
	if !f.silent[kind] {
		f.send(kind, answer)
	}
}

// receive passes the PDUs of a connection on, and reports its end.
func (f *fakeKernel) receive(conn net.Conn) {
	for {
		h, data, err := (wire{conn, 1}).receive(f.t.Context())
		f.mu.Lock()
		current := f.conn == conn
		switch {
		case err != nil && current && errors.Is(err, io.EOF):
			f.event(eventError, words(5, 0, 1020), nil)
		case err != nil && current:
			f.event(eventError, words(5, 0, 1011), nil)
		case err == nil && current:
			f.event(eventPDU, words(5, 0, 0, 0), append(h[:], data...))
		}
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (f *fakeKernel) event(kind uint32, answer, payload []byte) {
	body := make([]byte, messageSize)
	binary.NativeEndian.PutUint32(body, kind)
	copy(body[answerAt:], answer)
	f.send(uint16(kind), append(body, payload...))
}

func (f *fakeKernel) send(kind uint16, body []byte) {
	body = append(body, make([]byte, max(0, messageSize-len(body)))...)
	message := make([]byte, messageHeader)
	binary.NativeEndian.PutUint32(message, uint32(messageHeader+len(body)))
	binary.NativeEndian.PutUint16(message[4:], kind)
	_, _ = f.file.Write(append(message, body...)) // the initiator may be closed
}

// did reports whether a request was made.
func (f *fakeKernel) did(kind uint16) bool { return f.count(kind) > 0 }

// count returns how many times a request was made.
func (f *fakeKernel) count(kind uint16) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.requests {
		if request == kind {
			n++
		}
	}
	return n
}

func targetAt(address netip.AddrPort, c CHAP) Target {
	return Target{Name: diskName, Initiator: nodeName, Address: address, CHAP: c}
}

// A session starts with the parameters of the login, connects again when the target has closed the connection, and
// logs out.
func TestSession(t *testing.T) {
	target := testenv.StartISCSI(t, testenv.ISCSITarget{
		Name: diskName, User: "node", Secret: "secret-of-node", TargetUser: "disk", TargetSecret: "secret-of-disk",
	})
	i, fake, log := newInitiator(t)
	session, err := i.Connect(t.Context(),
		targetAt(target.Address, CHAP{"node", "secret-of-node", "disk", "secret-of-disk"}))
	if err != nil {
		t.Fatal(err)
	}
	<-fake.started
	fake.mu.Lock()
	for param, want := range map[uint32]string{
		paramTargetName: diskName, paramInitiatorName: nodeName, paramAddress: "127.0.0.1", paramMaxSend: "8192",
		paramInitialR2T: "1", paramImmediateData: "1", paramFirstBurst: "65536", paramMaxBurst: "262144",
		paramMaxReceive: "262144", paramRecoveryTimeout: "120", paramPortalGroup: "1", paramPingTimeout: "5",
	} {
		if got := fake.params[param]; got != want {
			t.Errorf("parameter %d: got %q, want %q", param, got, want)
		}
	}
	for param, value := range fake.params {
		if strings.Contains(value, "secret-of-") {
			t.Errorf("parameter %d contains a secret", param)
		}
	}
	fake.mu.Unlock()
	if got := target.Sessions(); !strings.Contains(got, "Session") {
		t.Errorf("the target has no session:\n%s", got)
	}
	target.Stop()
	target.Start()
	<-fake.started // again
	for ctx := testenv.Context(t, 5*time.Minute); !session.up.Load(); {
		if err := pause.For(ctx, time.Millisecond); err != nil {
			t.Fatalf("the connection is not back: %v\n%s", err, log)
		}
	}
	if got := target.Sessions(); !strings.Contains(got, "Session") {
		t.Errorf("after the restart, the target has no session:\n%s", got)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := target.Sessions(); strings.Contains(got, "Session") {
		t.Errorf("the target still has a session:\n%s", got)
	}
	for _, kind := range []uint16{unbindSession, destroyConnection, destroySession} {
		if !fake.did(kind) {
			t.Errorf("request %d was not made", kind)
		}
	}
	for _, want := range []string{"iSCSI session started", "iSCSI connection restored", "iSCSI session ended"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(log.String(), "secret-of-") {
		t.Error("the log contains a secret")
	}
}

// A session whose target is gone ends without waiting for it. Its disks fail, and the kernel forgets it.
func TestSessionEndsWithoutTarget(t *testing.T) {
	target := testenv.StartISCSI(t, testenv.ISCSITarget{Name: diskName})
	i, fake, log := newInitiator(t)
	i.o.recovery = time.Nanosecond
	session, err := i.Connect(t.Context(), targetAt(target.Address, CHAP{}))
	if err != nil {
		t.Fatal(err)
	}
	target.Stop()
	for !strings.Contains(log.String(), "iSCSI connection not restored in time: commands to its disks fail") {
		if t.Context().Err() != nil {
			t.Fatal(log)
		}
		time.Sleep(time.Millisecond)
	}
	if err := session.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "no connection") {
		t.Errorf("got %v, want an error", err)
	}
	if fake.did(unbindSession) || !fake.did(destroySession) {
		t.Error("the session was unbound, or not destroyed")
	}
	if !strings.Contains(log.String(), "iSCSI connection lost") {
		t.Errorf("got log %s", log)
	}
}

// A session ends in time even if the kernel does not answer, whether it is connecting again or removing the session.
func TestCloseIsLimited(t *testing.T) {
	late := errors.New("too late")
	for name, c := range map[string]struct {
		request uint16
		lose    bool // the connection, before the session is closed
		closing time.Duration
		want    string
	}{
		"context ends while connecting":  {bindConnection, true, time.Hour, late.Error()},
		"context ends while removing":    {stopConnection, false, time.Hour, late.Error()},
		"limit is over while connecting": {bindConnection, true, time.Millisecond, "not done within 1ms"},
		"limit is over while removing":   {destroySession, false, time.Second, "not done within 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := testenv.StartISCSI(t, testenv.ISCSITarget{Name: diskName})
			i, fake, _ := newInitiator(t)
			i.o.closing = c.closing
			session, err := i.Connect(t.Context(), targetAt(target.Address, CHAP{}))
			if err != nil {
				t.Fatal(err)
			}
			bound := fake.count(bindConnection)
			fake.mu.Lock()
			fake.silent = map[uint16]bool{c.request: true}
			conn := fake.conn
			fake.mu.Unlock()
			if c.lose {
				if err := conn.(*net.TCPConn).CloseRead(); err != nil {
					t.Fatal(err)
				}
				for ctx := testenv.Context(t, time.Minute); fake.count(bindConnection) == bound; {
					if err := pause.For(ctx, time.Millisecond); err != nil {
						t.Fatal(err)
					}
				}
			}
			ctx := t.Context()
			if c.closing == time.Hour {
				limited, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, late)
				defer cancel()
				ctx = limited
			}
			began := time.Now()
			err = session.Close(ctx)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if took := time.Since(began); took > answerTimeout/2 {
				t.Errorf("the session ended after %v, want less than %v", took, answerTimeout/2)
			}
		})
	}
}

// A request to bind that still waits for others when its context ends is dropped, so that no later one can follow it.
func TestBindIsDropped(t *testing.T) {
	i, fake, _ := newInitiator(t)
	socket, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	late := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	i.kernel.request.Lock()
	err = i.kernel.bind(ctx, 5, other)
	i.kernel.request.Unlock()
	if !errors.Is(err, late) {
		t.Errorf("got error %v, want %v", err, late)
	}
	if _, err := io.Copy(io.Discard, socket); err != nil { // until bind has closed its end
		t.Error(err)
	}
	if err := errors.Join(socket.Close(), i.kernel.stop(t.Context(), 5, stopForever)); err != nil {
		t.Error(err)
	}
	if fake.did(bindConnection) {
		t.Error("the request was sent")
	}
}

// A target that rejects the login after the connection was lost is asked again: it may not have its accounts yet.
func TestSessionRejectedLater(t *testing.T) {
	target := testenv.StartISCSI(t, testenv.ISCSITarget{Name: diskName, User: "node", Secret: "secret-of-node"})
	i, _, log := newInitiator(t)
	i.o.recovery = time.Nanosecond
	session, err := i.Connect(t.Context(), targetAt(target.Address, CHAP{Name: "node", Secret: "secret-of-node"}))
	if err != nil {
		t.Fatal(err)
	}
	waitLog := func(texts ...string) {
		for _, text := range texts {
			for !strings.Contains(log.String(), text) {
				if t.Context().Err() != nil {
					t.Fatalf("got log %s, want %q", log, text)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	target.Stop()
	waitLog("iSCSI connection not restored in time")
	target.Secret = "another-secret"
	target.Start()
	target.Stop()
	target.Secret = "secret-of-node"
	target.Start()
	waitLog("iSCSI connection restored")
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A session that cannot be started is removed from the kernel.
func TestSessionFails(t *testing.T) {
	target := testenv.StartISCSI(t, testenv.ISCSITarget{Name: diskName, User: "node", Secret: "secret-of-node"})
	closed := netip.AddrPortFrom(target.Address.Addr(), 1)
	good := CHAP{Name: "node", Secret: "secret-of-node"}
	for name, c := range map[string]struct {
		target Target
		fail   map[uint16]int32
		want   string
	}{
		"wrong secret": {
			targetAt(target.Address, CHAP{Name: "node", Secret: "secret-of-nobody"}), nil, "authentication failed",
		},
		"nobody listens": {targetAt(closed, good), nil, "connection refused"},
		"socket refused": {
			targetAt(target.Address, good),
			map[uint16]int32{bindConnection: -int32(unix.EINVAL)},
			"bind connection: invalid argument",
		},
		"parameter": {
			targetAt(target.Address, good), map[uint16]int32{setParameter: -int32(unix.ENOTCONN)}, "set parameter 15",
		},
		"start": {
			targetAt(target.Address, good), map[uint16]int32{startConnection: -int32(unix.EINVAL)}, "start connection",
		},
		"no name":    {Target{Initiator: nodeName, Address: closed}, nil, "got iSCSI name"},
		"no address": {Target{Name: diskName, Initiator: nodeName}, nil, "want address and port"},
	} {
		t.Run(name, func(t *testing.T) {
			i, fake, _ := newInitiator(t)
			if c.fail != nil {
				fake.fail = c.fail
			}
			_, err := i.Connect(t.Context(), c.target)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-of-") {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if fake.did(createSession) && !fake.did(destroySession) {
				t.Error("the session was not destroyed")
			}
		})
	}
}

// A session is removed if its context ends while its connection is created.
func TestSessionCancelled(t *testing.T) {
	i, fake, _ := newInitiator(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fake.before = map[uint16]func(){createConnection: func() {
		cancel()
		time.Sleep(100 * time.Millisecond) // the answer comes after the end
	}}
	closed := netip.MustParseAddrPort("127.0.0.1:1")
	if _, err := i.Connect(ctx, targetAt(closed, CHAP{})); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if !fake.did(destroySession) {
		t.Error("the session was not destroyed")
	}
}

// listen serves connections by a function, one after the other.
func listen(t *testing.T, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// A target that closes the connection, answers garbage or does not answer ends the attempt.
func TestSessionOfBadTarget(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{
		"closes": {func(net.Conn) {}, "code 10"}, // the kernel reports the end of receiving or of sending
		"garbage": {
			func(c net.Conn) { _, _ = c.Write(bytes.Repeat([]byte{0}, 480)); _, _ = io.Copy(io.Discard, c) },
			"operation code 0x00",
		},
		"silent": {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			i, fake, _ := newInitiator(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			serve := c.serve
			if name == "silent" {
				serve = func(conn net.Conn) {
					_, _ = conn.Read(make([]byte, 1)) // of the login
					cancel()
					c.serve(conn)
				}
			}
			_, err := i.Connect(ctx, targetAt(listen(t, serve), CHAP{}))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if !fake.did(destroySession) {
				t.Error("the session was not destroyed")
			}
		})
	}
}

// A login is redirected to another portal.
func TestSessionRedirected(t *testing.T) {
	target := testenv.StartISCSI(t, testenv.ISCSITarget{Name: diskName})
	first := listen(t, func(conn net.Conn) {
		w := wire{conn, 1}
		if _, _, err := w.receive(t.Context()); err != nil {
			t.Error(err)
		}
		text := "TargetAddress=" + target.Address.String() + ",1\x00"
		h := header{opLoginResponse}
		h[36], h[37] = classRedirection, 1
		putLength(&h, len(text))
		if err := w.send(t.Context(), h, []byte(text)); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, conn)
	})
	i, fake, _ := newInitiator(t)
	session, err := i.Connect(t.Context(), targetAt(first, CHAP{}))
	if err != nil {
		t.Fatal(err)
	}
	fake.mu.Lock()
	if got := fake.params[paramAddress] + ":" + fake.params[paramPort]; got != first.String() {
		t.Errorf("got persistent address %s, want that of the table, %s", got, first)
	}
	fake.mu.Unlock()
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The session's disks are waited for, and the scan that finds them is requested.
func TestWaitDisks(t *testing.T) {
	i, _, _ := newInitiator(t)
	s := &Session{i: i, host: 7, target: targetAt(netip.AddrPort{}, CHAP{})}
	scan := i.o.System.Sys("class/scsi_host/host7/scan")
	if err := os.WriteFile(scan, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no disk in time"))
	if _, err := s.WaitDisks(ended); err == nil || !strings.Contains(err.Error(), "no disk in time") &&
		!errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cause", err)
	}
	dir := i.o.System.Sys("devices/platform/host7/session1/target7:0:0/7:0:0:1/block/sdb")
	device := filepath.Dir(filepath.Dir(dir))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "size"), []byte("2048\n"), 0o600),
		os.Symlink(device, filepath.Join(dir, "device")),
		os.MkdirAll(i.o.System.Sys("class/block"), 0o755),
		os.Symlink(dir, i.o.System.Sys("class/block/sdb")),
		os.Symlink(dir, i.o.System.Sys("block/sdb"))); err != nil {
		t.Fatal(err)
	}
	disks, err := s.WaitDisks(t.Context())
	if err != nil || len(disks) != 1 || disks[0].Path != "/dev/sdb" || disks[0].Network != "iscsi" {
		t.Errorf("got %+v and %v, want /dev/sdb", disks, err)
	}
}

// The kernel's messages are parsed, whatever they contain.
func FuzzMessages(f *testing.F) {
	f.Add(make([]byte, messageHeader+messageSize))
	f.Add(append([]byte{72, 0, 0, 0, 101}, make([]byte, 200)...))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		k := &kernel{answers: make(chan answer, 1), sessions: map[uint32]chan event{0: make(chan event, 2)}}
		k.distribute(datagram)
		k.lost()
	})
}
