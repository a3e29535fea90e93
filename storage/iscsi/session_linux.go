package iscsi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

const (
	// connectTimeout limits a TCP connection and the login on it.
	connectTimeout = 15 * time.Second
	// retryPause is the pause between two attempts to connect again.
	retryPause = 2 * time.Second
	// recoveryTimeout is the time for which commands wait for a broken connection. Then the kernel fails them.
	recoveryTimeout = 2 * time.Minute
	// longPause is the pause between two attempts after recoveryTimeout.
	longPause = 30 * time.Second
	// logoutTimeout limits the wait for the target's answer to a logout, and for the removal of the disks.
	logoutTimeout = 5 * time.Second
	// closeTimeout limits the end of a session: the kernel can block while it removes a disk that does not answer.
	closeTimeout = 20 * time.Second
	// pingInterval is the time without a PDU of the target after which the kernel sends a ping, and pingTimeout the
	// time in which the target must answer.
	pingInterval = 5 * time.Second
	pingTimeout  = 5 * time.Second
	maxRedirects = 4
)

// Options are the options of an Initiator.
type Options struct {
	System sysfs.Root
	Log    *slog.Logger
	Dialer Dialer // nil is a net.Dialer

	// Limits that tests shorten; 0 are recoveryTimeout and closeTimeout.
	recovery, closing time.Duration
}

// Dialer connects to portals.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Initiator is the kernel's initiator for TCP.
type Initiator struct {
	o      Options
	kernel *kernel
}

func (i *Initiator) dial(ctx context.Context, address string) (net.Conn, error) {
	if i.o.Dialer == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return i.o.Dialer.DialContext(ctx, "tcp", address)
}

// Open opens the kernel's initiator. The module iscsi_tcp must be loaded.
func Open(o Options) (*Initiator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.recovery == 0 {
		o.recovery = recoveryTimeout
	}
	if o.closing == 0 {
		o.closing = closeTimeout
	}
	k, err := openKernel(o.System)
	if err != nil {
		return nil, err
	}
	return &Initiator{o: o, kernel: k}, nil
}

// Session is a session with a target. The kernel lists its disks as SCSI disks.
type Session struct {
	i      *Initiator
	target Target
	number uint32 // of the session
	host   uint32 // number of the SCSI host
	events <-chan event

	up      atomic.Bool // the target is connected
	stop    context.CancelFunc
	stopped chan struct{} // closed when watch has returned
	once    sync.Once
	err     error // of Close
}

// Connect logs in to a target and starts a session. The session is kept until Close, also after ctx has ended. It
// connects again when its connection breaks, unless the target rejects the login.
func (i *Initiator) Connect(ctx context.Context, target Target) (*Session, error) {
	if err := target.check(); err != nil {
		return nil, fmt.Errorf("connect to iSCSI target: %w", err)
	}
	number, host, events, err := i.kernel.createSession(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{i: i, target: target, number: number, host: host, events: events, stopped: make(chan struct{})}
	if err := s.connect(ctx); err != nil {
		close(s.stopped)
		removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.o.closing)
		defer cancel()
		_ = s.remove(removing) // the error of the connection is the cause
		return nil, err
	}
	s.up.Store(true)
	i.o.Log.Info("iSCSI session started", "target", target.Name, "address", target.Address, "session", number)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	goroutine.Go(func() error {
		defer close(s.stopped)
		goroutine.Persist(watching, retryPause, func() { s.watch(watching) })
		return nil
	}, nil)
	return s, nil
}

// connect makes the connection of the session: first to the target's address, then to those to which it redirects.
func (s *Session) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout,
		fmt.Errorf("no connection to %s within %v", s.target.Address, connectTimeout))
	defer cancel()
	address := s.target.Address
	for range maxRedirects {
		err := s.connectTo(ctx, address)
		var rejected *LoginError
		if !errors.As(err, &rejected) || rejected.Address == "" {
			return err
		}
		next, parseErr := parseAddress(rejected.Address)
		if parseErr != nil {
			return fmt.Errorf("%w: %w", err, parseErr)
		}
		s.i.o.Log.Info("iSCSI target redirects", "target", s.target.Name, "from", address, "to", next)
		if err := s.i.kernel.stop(ctx, s.number, stopToRecover); err != nil {
			return err
		}
		s.drain()
		address = next
	}
	return fmt.Errorf("connect to iSCSI target %s: more than %d redirections", s.target.Name, maxRedirects)
}

func (s *Session) connectTo(ctx context.Context, address netip.AddrPort) error {
	conn, err := s.i.dial(ctx, address.String())
	if err != nil {
		return fmt.Errorf("connect to iSCSI target %s: %w", s.target.Name, err)
	}
	defer conn.Close() //nolint:errcheck // the kernel has its own reference to the socket
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("connect to iSCSI target %s: got a connection of type %T, want TCP", s.target.Name, conn)
	}
	file, err := tcp.File()
	if err != nil {
		return fmt.Errorf("connect to iSCSI target %s: %w", s.target.Name, err)
	}
	if err := s.i.kernel.bind(ctx, s.number, file); err != nil {
		return err
	}
	p, err := logIn(ctx, s, s.target)
	if err != nil {
		return err
	}
	return s.configure(ctx, p)
}

// configure sets the parameters of the session and starts it.
func (s *Session) configure(ctx context.Context, p parameters) error {
	yes := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	list := []struct {
		param int
		value string
	}{
		{paramTargetName, s.target.Name},
		{paramInitiatorName, s.target.Initiator},
		{paramAddress, s.target.Address.Addr().String()},
		{paramPort, strconv.Itoa(int(s.target.Address.Port()))},
		{paramMaxReceive, strconv.Itoa(maxReceive)},
		{paramMaxSend, strconv.Itoa(p.maxSend)},
		{paramHeaderDigest, "0"},
		{paramDataDigest, "0"},
		{paramInitialR2T, yes(p.initialR2T)},
		{paramImmediateData, yes(p.immediateData)},
		{paramMaxR2T, strconv.Itoa(p.maxR2T)},
		{paramFirstBurst, strconv.Itoa(p.firstBurst)},
		{paramMaxBurst, strconv.Itoa(p.maxBurst)},
		{paramPDUInOrder, "1"},
		{paramSequenceInOrder, "1"},
		{paramRecoveryLevel, "0"},
		{paramExpStatSN, strconv.FormatUint(uint64(p.expStatSN), 10)},
		{paramRecoveryTimeout, seconds(s.i.o.recovery)},
		{paramFastAbort, "1"},
		{paramAbortTimeout, "15"},
		{paramResetTimeout, "30"},
		{paramPingTimeout, seconds(pingTimeout)},
		{paramReceiveTimeout, seconds(pingInterval)},
	}
	if p.group >= 0 {
		list = append(list, struct {
			param int
			value string
		}{paramPortalGroup, strconv.Itoa(p.group)})
	}
	for _, item := range list {
		if err := s.i.kernel.set(ctx, s.number, item.param, item.value); err != nil {
			return err
		}
	}
	return s.i.kernel.start(ctx, s.number)
}

// send implements pdus by the kernel.
func (s *Session) send(ctx context.Context, h header, data []byte) error {
	return s.i.kernel.sendPDU(ctx, s.number, h, data)
}

// receive implements pdus by the kernel.
func (s *Session) receive(ctx context.Context) (header, []byte, error) {
	select {
	case e := <-s.events:
		if e.err != 0 {
			return header{}, nil, connectionError(e.err)
		}
		return e.header, e.data, nil
	case <-s.i.kernel.ended:
		return header{}, nil, s.i.kernel.failure()
	case <-ctx.Done():
		return header{}, nil, context.Cause(ctx)
	}
}

// drain discards the events of an earlier connection.
func (s *Session) drain() {
	for {
		select {
		case <-s.events:
		default:
			return
		}
	}
}

// watch waits until the connection breaks and connects again. It returns when ctx ends, the target rejects the login
// or the kernel's initiator fails.
func (s *Session) watch(ctx context.Context) {
	log := s.i.o.Log.With("target", s.target.Name, "session", s.number)
	for {
		cause := s.broken(ctx)
		if ctx.Err() != nil {
			return
		}
		s.up.Store(false)
		log.Warn("iSCSI connection lost, connecting again", "err", cause, "limit", s.i.o.recovery)
		if err := s.recover(ctx, log); err != nil {
			if ctx.Err() == nil {
				log.Error("iSCSI session is lost: its disks fail", "err", err)
			}
			return
		}
		s.up.Store(true)
	}
}

// broken waits until the connection has ended, and returns why.
func (s *Session) broken(ctx context.Context) error {
	for {
		h, _, err := s.receive(ctx)
		if err != nil {
			return err
		}
		if h[0]&0x3f == opAsync && h[36] >= 1 && h[36] <= 4 {
			return fmt.Errorf("target announces the end of the connection (event %d)", h[36])
		}
	}
}

// recover connects again. Its error is permanent. A target that rejects a login as if it were just starting is asked
// again, since it accepted the same login before.
func (s *Session) recover(ctx context.Context, log *slog.Logger) error {
	began := time.Now()
	overdue := false
	for {
		err := s.i.kernel.stop(ctx, s.number, stopToRecover)
		if err == nil {
			s.drain()
			err = s.connect(ctx)
		}
		var rejected *LoginError
		switch {
		case err == nil:
			log.Info("iSCSI connection restored", "duration", time.Since(began).Round(time.Millisecond))
			return nil
		case ctx.Err() != nil, errors.As(err, &rejected) && rejected.Permanent() && !rejected.starting(),
			s.i.kernel.failure() != nil:
			return err
		}
		log.Debug("iSCSI connection not restored yet", "err", err)
		next := retryPause
		if time.Since(began) > s.i.o.recovery {
			next = longPause
			if !overdue {
				log.Error("iSCSI connection not restored in time: commands to its disks fail until it is", "err", err)
			}
			overdue = true
		}
		if err := pause.For(ctx, next); err != nil {
			return err
		}
	}
}

// WaitDisks makes the kernel look for the session's disks, and waits until there is one with a size. If ctx ends first,
// the error wraps its cause.
func (s *Session) WaitDisks(ctx context.Context) ([]block.Device, error) {
	scanned := make(chan error, 1)
	goroutine.Go(func() error { // it returns when every unit has answered
		scan := s.i.o.System.Sys("class/scsi_host", fmt.Sprintf("host%d", s.host), "scan")
		f, err := os.OpenFile(scan, os.O_WRONLY, 0) // never creates it: the host can be gone
		if err != nil {
			return err
		}
		_, err = f.WriteString("- - -")
		return errors.Join(err, f.Close())
	}, func(err error) { scanned <- err })
	var own []block.Device
	_, err := block.WaitDisks(ctx, s.i.o.System, func(disks []block.Device) bool {
		own = s.ownDisks(disks)
		return len(own) > 0
	})
	if err != nil {
		select {
		case failed := <-scanned:
			err = errors.Join(err, failed)
		default:
		}
		return nil, fmt.Errorf("wait for disks of iSCSI target %s: %w", s.target.Name, err)
	}
	return own, nil
}

// ownDisks returns the disks of the session, also those below a multipath map.
func (s *Session) ownDisks(disks []block.Device) (own []block.Device) {
	prefix := fmt.Sprintf("%d:", s.host)
	for _, d := range disks {
		for _, path := range append([]block.Device{d}, d.Components...) {
			if strings.HasPrefix(path.HCTL, prefix) && path.Size > 0 && !slices.ContainsFunc(own,
				func(other block.Device) bool { return other.Path == path.Path }) {
				own = append(own, path)
			}
		}
	}
	return own
}

// Close ends the session: the kernel flushes the caches of its disks and removes them, and the target is logged out of.
// A target that does not answer delays it for a few seconds. Without a connection, the disks are removed at once. When
// ctx ends, or after closeTimeout, Close returns an error, and the kernel continues with the request that it handles.
// Later calls return the error of the first one.
func (s *Session) Close(ctx context.Context) error {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeoutCause(ctx, s.i.o.closing, fmt.Errorf("not done within %v", s.i.o.closing))
		defer cancel()
		if s.err = s.end(ctx); s.err == nil {
			s.i.o.Log.Info("iSCSI session ended", "target", s.target.Name, "session", s.number)
		}
	})
	return s.err
}

// end logs out of the target if it is connected, and removes the session.
func (s *Session) end(ctx context.Context) (err error) {
	s.stop()
	if err := pause.Until(ctx, s.stopped); err != nil {
		return fmt.Errorf("end iSCSI session of target %s: %w", s.target.Name, context.Cause(ctx))
	}
	if s.up.Load() {
		err = s.logOut(ctx)
	} else {
		err = fmt.Errorf("log out of iSCSI target %s: no connection", s.target.Name)
	}
	return errors.Join(err, s.remove(ctx))
}

// logOut removes the disks and ends the session at the target.
func (s *Session) logOut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	if err := s.i.kernel.unbind(ctx, s.number); err != nil {
		return err
	}
	_, err := block.WaitDisks(ctx, s.i.o.System, func(disks []block.Device) bool { return len(s.ownDisks(disks)) == 0 })
	if err != nil {
		return fmt.Errorf("remove disks of iSCSI target %s: %w", s.target.Name, err)
	}
	s.drain()
	h := header{opImmediate | opLogoutRequest, 0x80}
	if err := s.send(ctx, h, nil); err != nil {
		return err
	}
	for {
		h, _, err := s.receive(ctx)
		if err != nil {
			return fmt.Errorf("log out of iSCSI target %s: %w", s.target.Name, err)
		}
		if h[0]&0x3f != opLogoutResponse {
			continue
		}
		if h[2] != 0 {
			return fmt.Errorf("log out of iSCSI target %s: got response %d, want 0", s.target.Name, h[2])
		}
		return nil
	}
}

// remove removes the session from the kernel.
func (s *Session) remove(ctx context.Context) error {
	_ = s.i.kernel.stop(ctx, s.number, stopForever) // fails if nothing was bound
	return errors.Join(s.i.kernel.destroyConnection(ctx, s.number), s.i.kernel.destroySession(ctx, s.number))
}
