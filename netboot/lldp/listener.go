package lldp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/lldp"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// Limits of all links together. A machine with hundreds of virtual functions has hundreds of links.
const (
	maxLinks      = 1024     // a quarter of the file descriptors that the kernel allows PID 1
	maxStored     = 4 << 20  // bytes of memory for the frames of all links
	receiveBuffer = 32 << 10 // bytes per link that the kernel queues
)

// ErrClosed is returned by Wait if the listener is closed.
var ErrClosed = errors.New("lldp: listener closed")

// groups returns the multicast addresses of LLDP: nearest bridge, nearest non-TPMR bridge, nearest customer bridge
// (IEEE 802.1AB-2016, table 7-1).
func groups() []net.HardwareAddr {
	return []net.HardwareAddr{
		{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e},
		{0x01, 0x80, 0xc2, 0x00, 0x00, 0x03},
		{0x01, 0x80, 0xc2, 0x00, 0x00, 0x00},
	}
}

// Listener listens on links until it is closed. It is safe for concurrent use.
type Listener struct {
	log     *slog.Logger
	running *goroutine.Group
	buffers sync.Pool // of frames being received; links share them, and a link without traffic uses none

	mu      sync.Mutex
	ports   map[int]*port // by the link's kernel index
	heard   time.Time     // when the last link received its first frame
	failed  error         // error of the first link that could not be opened
	full    bool          // maxLinks was exceeded, and logged
	stored  int           // bytes of memory of all ports' frames, at most maxStored
	dropped bool          // a frame was dropped because of maxStored, and logged
	closed  bool
	changed chan struct{} // closed and replaced when Wait must check again
}

// port is the state of a link. All fields but conn are guarded by Listener.mu.
type port struct {
	conn     *packet.Conn
	name     string
	frame    Frame
	expected bool      // frames can arrive: Wait waits for the first one
	since    time.Time // when frames could first arrive
	silent   bool      // Wait has given up on it
	closed   bool
	bad      bool // a malformed frame was logged
	logged   bool // the neighbour was logged
}

// New returns a listener without links. log may be nil.
func New(log *slog.Logger) *Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Listener{log: log, running: goroutine.NewGroup(), ports: map[int]*port{}, changed: make(chan struct{})}
	l.buffers.New = func() any { return new([maxFrame]byte) }
	return l
}

// Open starts to listen on the Ethernet link with this kernel index, which may be up or down. If the link is already
// open, Open sets its name. A link that cannot be opened is logged as a warning. Open needs CAP_NET_RAW.
func (l *Listener) Open(index int, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, known := l.ports[index]; known {
		p.name = name
		return
	}
	if l.closed {
		return
	}
	if len(l.ports) == maxLinks {
		if !l.full {
			l.log.Warn("too many links, LLDP not received on further links", "interface", name, "limit", maxLinks)
		}
		l.full = true
		return
	}
	conn, raw, err := open(index)
	if err != nil {
		err = fmt.Errorf("listen for LLDP on %s: %w", name, err)
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (requires the capability CAP_NET_RAW)", err)
		}
		l.log.Warn("LLDP not received on link", "interface", name, "err", err)
		if l.failed == nil {
			l.failed = err
		}
		return
	}
	p := &port{conn: conn, name: name}
	l.ports[index] = p
	l.running.Go(func() error {
		l.read(p, raw)
		return nil
	})
}

func open(index int) (*packet.Conn, syscall.RawConn, error) {
	conn, err := packet.Listen(&net.Interface{Index: index}, packet.Raw, int(lldp.EtherType), nil)
	if err != nil {
		return nil, nil, err
	}
	for _, group := range groups() {
		if err := conn.JoinGroup(group); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("join group %v: %w", group, err), conn.Close())
		}
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	})
	if err = errors.Join(err, failed); err != nil {
		err = fmt.Errorf("set receive buffer to %d bytes: %w", receiveBuffer, err)
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, raw, nil
}

// Expect sets whether frames can arrive on a link, which requires a carrier. Wait only waits for such links.
func (l *Listener) Expect(index int, expected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.ports[index]
	if !known || p.expected == expected {
		return
	}
	p.expected, p.since, p.silent = expected, time.Now(), false
	l.wake()
}

// Begin records that a link has just got its carrier. Wait ignores silence before that.
func (l *Listener) Begin(index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, known := l.ports[index]; known {
		p.since = time.Now()
	}
}

// Forget closes a link that no longer exists, and drops its frame.
func (l *Listener) Forget(index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.ports[index]
	if !known {
		return
	}
	delete(l.ports, index)
	l.stored -= p.frame.memory()
	l.shut(p)
	l.wake()
}

// Close closes all links. Their frames are kept.
func (l *Listener) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		for _, p := range l.ports {
			l.shut(p)
		}
		l.wake()
	}
	l.mu.Unlock()
	_ = l.running.Wait() // a panic was logged
}

// shut closes a link's socket, which ends its reader.
func (l *Listener) shut(p *port) {
	p.closed = true
	if err := p.conn.Close(); err != nil {
		l.log.Warn("LLDP socket not closed", "interface", p.name, "err", err)
	}
}

// wake makes Wait check again; mu is held.
func (l *Listener) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Changed returns a channel that is closed when the frames may have changed. To miss no change, call it before Frames.
func (l *Listener) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Frames returns the newest frame of every open link by the link's name. The frame of a link without one has no TLVs.
func (l *Listener) Frames() map[string]Frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames := make(map[string]Frame, len(l.ports))
	for _, p := range l.ports {
		frames[p.name] = p.frame
	}
	return frames
}

// Wait waits until a frame was received on every link on which frames can arrive (see Expect), and returns the frames
// as Frames does. Frames received before the call count.
//
// Wait gives up without an error when no link has received its first frame for quiet, counted from the carrier of the
// last link that it waits for. Time before the call counts. It then does not wait for these links again until they get
// a carrier again. The error is ctx's or ErrClosed; the frames are returned with an error, too.
func (l *Listener) Wait(ctx context.Context, quiet time.Duration) (map[string]Frame, error) {
	started := time.Now()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for logged := false; ; logged = true {
		l.mu.Lock()
		changed, closed, missing, since := l.changed, l.closed, l.missing(), l.quietSince()
		l.mu.Unlock()
		left := quiet - time.Since(since)
		switch {
		case closed:
			return l.Frames(), ErrClosed
		case len(missing) == 0:
			return l.Frames(), nil
		case left <= 0:
			l.giveUp(time.Since(started))
			return l.Frames(), nil
		case !logged:
			l.log.Info("waiting for LLDP frames",
				"interfaces", names(missing), "timeout", left.Round(time.Millisecond))
		}
		timer.Reset(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return l.Frames(), fmt.Errorf("wait for LLDP frames: %w", ctx.Err())
		}
	}
}

// quietSince returns the start of the silence that Wait measures; mu is held.
func (l *Listener) quietSince() time.Time {
	since := l.heard
	for _, p := range l.missing() {
		if p.since.After(since) {
			since = p.since
		}
	}
	return since
}

// missing returns the links that Wait waits for; mu is held.
func (l *Listener) missing() []*port {
	var missing []*port
	for _, p := range l.ports {
		if p.expected && !p.silent && p.frame.TLVs == nil {
			missing = append(missing, p)
		}
	}
	return missing
}

// giveUp ends the wait for the missing links.
func (l *Listener) giveUp(waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := l.missing()
	for _, p := range missing {
		p.silent = true
	}
	l.log.Info("no LLDP frame received on some links",
		"interfaces", names(missing), "waited", waited.Round(time.Millisecond))
}

func names(ports []*port) string {
	list := make([]string, len(ports))
	for i, p := range ports {
		list[i] = p.name
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// read receives the frames of a link until its socket is closed.
func (l *Listener) read(p *port, raw syscall.RawConn) {
	for {
		var buffer *[maxFrame]byte
		var n int
		var failed error
		// Without mu: Close waits for this function while it holds mu.
		err := raw.Read(func(fd uintptr) (received bool) {
			buffer = l.buffers.Get().(*[maxFrame]byte) //nolint:forcetypeassert,errcheck // has no other type
			if n, failed = recv(int(fd), buffer[:]); errors.Is(failed, unix.EAGAIN) {
				l.buffers.Put(buffer)
				return false
			}
			return true
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			l.end(p, err)
			return
		}
		_ = goroutine.Catch(func() error { // a frame that panics is dropped
			l.receive(p, buffer[:n])
			return nil
		})
		l.buffers.Put(buffer)
	}
}

// recv returns the next frame from the queue of a socket.
func recv(fd int, buffer []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
			continue // ENETDOWN is returned once when the link goes down; frames arrive again when it comes up
		}
		return n, os.NewSyscallError("recvfrom", err)
	}
}

// end handles the end of a link's reader. It logs err unless the socket was closed on purpose, for which packet
// sockets have no error of their own.
func (l *Listener) end(p *port, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.closed {
		return
	}
	l.log.Warn("LLDP no longer received on link", "interface", p.name, "err", err)
	p.expected = false
	l.wake()
}

// receive stores a frame, unless it is less complete than the stored one.
func (l *Listener) receive(p *port, data []byte) {
	frame, err := Parse(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !p.bad {
		p.bad = true // logged once: such a sender repeats the frame
		l.log.Debug("malformed LLDP frame", "interface", p.name, "tlvs", len(frame.TLVs), "err", err)
	}
	switch {
	case p.closed:
		return
	case frame.leaving:
		l.store(p, Frame{})
		l.wake()
		return
	case len(frame.TLVs) == 0, p.frame.Complete && !frame.Complete, !l.store(p, frame):
		return
	}
	l.wake() // also if the log panics
	if !p.logged {
		p.logged = true
		l.heard = time.Now()
		n := frame.Neighbour()
		l.log.Info("LLDP neighbour found", "interface", p.name, "system", n.System, "port", n.Port)
	}
}

// store replaces the frame of a link and reports whether the memory for frames suffices; mu is held.
func (l *Listener) store(p *port, frame Frame) bool {
	stored := l.stored - p.frame.memory() + frame.memory()
	if stored > maxStored {
		if !l.dropped {
			l.dropped = true
			l.log.Warn("LLDP frame dropped: memory for frames is used up", "interface", p.name, "limit", maxStored)
		}
		return false
	}
	l.stored, p.frame = stored, frame
	return true
}
