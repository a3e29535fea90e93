// Package lldp receives frames of the Link Layer Discovery Protocol (IEEE 802.1AB-2016) on all links of a machine at
// once and keeps the newest one of each link.
//
// A link is listened to by a packet socket (packet(7)) that is a member of the three multicast groups of the protocol.
// The kernel ends the membership with the socket, so that nothing has to be restored. A socket may be opened while its
// link is still down and then hears the link from its very first frame.
//
// Limits: nothing is sent; at most 1024 links, one frame of at most 9216 bytes per link, and 4 MiB for the frames of
// all links. A frame is kept after its time to live has expired, because it still shows the other end of the cable. It
// is dropped when the neighbour announces that it shuts down.
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

// Bounds of all links together. A machine with hundreds of virtual functions has hundreds of links.
const (
	maxLinks      = 1024     // a quarter of the file descriptors that the kernel allows PID 1
	maxStored     = 4 << 20  // bytes of memory for the frames of all links
	receiveBuffer = 32 << 10 // bytes of frames that the kernel queues per link
)

// ErrClosed says that the listener was closed while it was waited for.
var ErrClosed = errors.New("lldp: listener closed")

// groups are the addresses LLDP frames are sent to: nearest bridge, nearest bridge but two-port relays, nearest
// customer bridge (IEEE 802.1AB-2016, table 7-1).
func groups() []net.HardwareAddr {
	return []net.HardwareAddr{
		{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e},
		{0x01, 0x80, 0xc2, 0x00, 0x00, 0x03},
		{0x01, 0x80, 0xc2, 0x00, 0x00, 0x00},
	}
}

// Listener listens on links until it is closed. Its methods may be called from any goroutine.
type Listener struct {
	log     *slog.Logger
	running *goroutine.Group
	buffers sync.Pool // of frames being received; links share them, and a link without traffic holds none

	mu      sync.Mutex
	ports   map[int]*port // by the link's kernel index
	heard   time.Time     // when a link was last heard for the first time
	failed  error         // the first link that cannot be listened to
	full    bool          // there was one link too many
	stored  int           // bytes of memory of all ports' frames, at most maxStored
	dropped bool          // a frame was dropped because of maxStored, and logged
	closed  bool
	changed chan struct{} // closed and replaced when Wait has to look again
}

// port is one link; everything but conn is under Listener.mu.
type port struct {
	conn     *packet.Conn
	name     string
	frame    Frame
	expected bool      // frames may come: Wait waits for the first one
	since    time.Time // when they could first
	silent   bool      // Wait has waited in vain
	closed   bool
	bad      bool // a malformed frame was logged
	told     bool // the link was heard, and its neighbour logged
}

// New returns a listener without links. A nil log discards.
func New(log *slog.Logger) *Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Listener{log: log, running: goroutine.NewGroup(), ports: map[int]*port{}, changed: make(chan struct{})}
	l.buffers.New = func() any { return new([maxFrame]byte) }
	return l
}

// Open begins to listen on the Ethernet link with this kernel index, be it up or down. A link that is open already gets
// its new name. A link that cannot be listened to is a warning in the log: the others do not suffer from it. It needs
// CAP_NET_RAW.
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
			l.log.Warn("too many links, LLDP is not heard on this one and those after it", "interface", name, "limit", maxLinks)
		}
		l.full = true
		return
	}
	conn, raw, err := open(index)
	if err != nil {
		err = fmt.Errorf("listen for LLDP on %s: %w", name, err)
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w (it needs the capability CAP_NET_RAW)", err)
		}
		l.log.Warn("LLDP is not heard on this link", "interface", name, "err", err)
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
		return nil, nil, errors.Join(fmt.Errorf("set receive buffer to %d bytes: %w", receiveBuffer, err), conn.Close())
	}
	return conn, raw, nil
}

// Expect reports whether frames may come on a link, as they do once it has a carrier. Only such links are waited for.
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

// Begin says that a link's carrier has come just now: a silence before it does not count.
func (l *Listener) Begin(index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, known := l.ports[index]; known {
		p.since = time.Now()
	}
}

// Forget ends the listening on a link that is gone, and forgets its frame.
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

// Close ends all listening. What was heard stays known.
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

// shut closes a socket, which ends its reader.
func (l *Listener) shut(p *port) {
	p.closed = true
	if err := p.conn.Close(); err != nil {
		l.log.Warn("LLDP socket cannot be closed", "interface", p.name, "err", err)
	}
}

// wake is called with mu held.
func (l *Listener) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Changed returns a channel that is closed when something new may have been heard. Take it before looking at Frames, so
// that nothing is missed.
func (l *Listener) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Frames returns the newest frame of every link that is listened to, by the link's name; the frame of a link on which
// none was heard has no TLVs.
func (l *Listener) Frames() map[string]Frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames := make(map[string]Frame, len(l.ports))
	for _, p := range l.ports {
		frames[p.name] = p.frame
	}
	return frames
}

// Wait waits until a frame was heard on every link that frames may come on, and returns what Frames does. Frames heard
// before the call count, and so does silence: it gives up when quiet has passed since the last of the links it waits for
// got its carrier, and since a link was last heard for the first time. That is no error, and a link that was waited for in
// vain is not waited for again until it gets a carrier anew. With an error, which is that of ctx or ErrClosed, it returns
// the frames all the same.
func (l *Listener) Wait(ctx context.Context, quiet time.Duration) (map[string]Frame, error) {
	started := time.Now()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for told := false; ; told = true {
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
		case !told:
			l.log.Info("waiting for LLDP frames", "interfaces", names(missing), "timeout", left.Round(time.Millisecond))
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

// quietSince returns the beginning of the silence that Wait waits through; mu is held.
func (l *Listener) quietSince() time.Time {
	since := l.heard
	for _, p := range l.missing() {
		if p.since.After(since) {
			since = p.since
		}
	}
	return since
}

// missing returns the links still to be waited for; mu is held.
func (l *Listener) missing() []*port {
	var missing []*port
	for _, p := range l.ports {
		if p.expected && !p.silent && p.frame.TLVs == nil {
			missing = append(missing, p)
		}
	}
	return missing
}

func (l *Listener) giveUp(waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := l.missing()
	for _, p := range missing {
		p.silent = true
	}
	l.log.Info("no LLDP frame came on some links", "interfaces", names(missing), "waited", waited.Round(time.Millisecond))
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
		err := raw.Read(func(fd uintptr) (received bool) { // without mu: close waits for this function while it holds mu
			buffer = l.buffers.Get().(*[maxFrame]byte) //nolint:forcetypeassert,errcheck // the pool holds nothing else
			if n, failed = receive(int(fd), buffer[:]); errors.Is(failed, unix.EAGAIN) {
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
			l.take(p, buffer[:n])
			return nil
		})
		l.buffers.Put(buffer)
	}
}

// receive returns the next frame from the queue of a socket.
func receive(fd int, buffer []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
			continue // ENETDOWN is reported once when the link goes down; the kernel delivers again when it comes up
		}
		return n, os.NewSyscallError("recvfrom", err)
	}
}

// end notes that a link is no longer read, which is news unless its socket was closed on purpose: a packet socket has no
// error of its own for that.
func (l *Listener) end(p *port, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.closed {
		return
	}
	l.log.Warn("LLDP is no longer heard on this link", "interface", p.name, "err", err)
	p.expected = false
	l.wake()
}

// take keeps a frame, unless it says less than the one before.
func (l *Listener) take(p *port, data []byte) {
	frame, err := Parse(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !p.bad {
		p.bad = true // one line is enough: who sends one such frame sends many
		l.log.Debug("malformed LLDP frame", "interface", p.name, "tlvs", len(frame.TLVs), "err", err)
	}
	switch {
	case p.closed:
		return
	case frame.leaving:
		l.keep(p, Frame{})
		l.wake()
		return
	case len(frame.TLVs) == 0, p.frame.Complete && !frame.Complete, !l.keep(p, frame):
		return
	}
	if !p.told {
		p.told = true
		l.heard = time.Now()
		n := frame.Neighbour()
		l.log.Info("lldp neighbour", "interface", p.name, "system", n.System, "port", n.Port)
	}
	l.wake()
}

// keep replaces the frame of a link and reports whether the memory for frames allows it; mu is held.
func (l *Listener) keep(p *port, frame Frame) bool {
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
