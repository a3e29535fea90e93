package burnin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"ironroot/agent/hardware/burnin/tooz"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
)

// NetworkReport describes a test of the network.
type NetworkReport struct {
	Partner     string  `json:"partner"`
	Connections int     `json:"connections"`
	Sent        int64   `json:"sent"`     // bytes that the partner has verified
	Received    int64   `json:"received"` // bytes that were verified
	Seconds     float64 `json:"seconds"`
}

const (
	// The port, the number of connections and the time between two attempts to connect are ironic-python-agent's.
	networkPort          = 9000
	connections          = 16
	networkRetryInterval = 30 * time.Second

	messageBytes = 128 << 10
	// networkSilence is the time without progress after which a connection is lost.
	networkSilence = time.Minute
	// partnerWait is the time for which a node waits for its partner: the partner's earlier steps may take longer.
	partnerWait = day
	// networkDrain is the time after the runtime in which the receiver gets what is still in buffers, and after which
	// a partner that has swapped the roles is lost.
	networkDrain = 10 * time.Minute
)

// A message has a header of 16 bytes: 8 bytes with its number, 4 with CRC-32C of what follows, and 4 with the length
// of that. The last message is empty, and its number is the number of messages before. The receiver answers it by the
// same header.
const messageHeader = 16

// networkTest is one run of Network.
type networkTest struct {
	Machine
	o       NetworkOptions
	partner []netip.Addr
	port    int
	retry   time.Duration // between two attempts to connect
	wait    time.Duration // for the first connection
	silence time.Duration // see networkSilence
	drain   time.Duration // see networkDrain
	damage  func([]byte)  // a test changes what is sent; may be nil
	pairer  pairer
}

// pairer finds the partner of a node.
type pairer interface {
	pair(ctx context.Context, log *slog.Logger, o tooz.Options) (tooz.Partner, error)
}

// toozPairer implements pairer: see [tooz.Pair].
type toozPairer struct{}

func (toozPairer) pair(ctx context.Context, log *slog.Logger, o tooz.Options) (tooz.Partner, error) {
	return tooz.Pair(ctx, log, o)
}

// Network sends data to another node that runs this test, then receives from it, or the other way around. The data are
// verified. A node waits a day for its partner, or as long as for pairing if they were paired. The node that sends only
// accepts connections from its partner, and listens until it has them.
func Network(ctx context.Context, m Machine, o NetworkOptions) (*NetworkReport, error) {
	t := &networkTest{
		Machine: m, o: o, port: networkPort, pairer: toozPairer{},
		retry: networkRetryInterval, wait: partnerWait, silence: networkSilence, drain: networkDrain,
	}
	return t.run(ctx)
}

func (t *networkTest) run(ctx context.Context) (*NetworkReport, error) {
	report := &NetworkReport{Connections: connections}
	started := time.Now()
	err := t.findPartner(ctx)
	if report.Partner = t.o.Partner; err != nil {
		return report, err
	}
	if t.partner, err = net.DefaultResolver.LookupNetIP(ctx, "ip", t.o.Partner); err != nil {
		return report, fmt.Errorf("look up partner: %w", err)
	}
	for _, writer := range []bool{t.o.Writer, !t.o.Writer} {
		role, work, bytes := "reader", t.receive, &report.Received
		if writer {
			role, work, bytes = "writer", t.send, &report.Sent
		}
		path := ""
		if t.o.Output != "" {
			path = t.o.Output + "." + role
		}
		out, err := openOutput(path)
		if err != nil {
			return report, err
		}
		t.Log.Info("testing network", "role", role, "partner", t.o.Partner, "duration", t.o.Runtime)
		var took time.Duration
		*bytes, took, err = work(ctx)
		if err != nil {
			err = fmt.Errorf("%s for %s: %w", role, t.o.Partner, err)
		}
		if err := errors.Join(err, out.finish(networkJob(role, *bytes, took, err))); err != nil {
			return report, err
		}
		t.wait = min(t.wait, t.drain) // the partner is there and swaps the roles too
		t.Log.Info("network tested", "role", role, "partner", t.o.Partner, "bytes", *bytes, "duration", took)
	}
	report.Seconds = seconds(time.Since(started))
	return report, nil
}

// findPartner pairs the node if its partner is not known. Both nodes then begin at once.
func (t *networkTest) findPartner(ctx context.Context) error {
	if t.o.Pairing == nil {
		return nil
	}
	partner, err := t.pairer.pair(ctx, t.Log, *t.o.Pairing)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPairing, err)
	}
	t.o.Partner, t.o.Writer, t.wait = partner.Name, partner.First, t.o.Pairing.Timeout
	return nil
}

// each calls do for all connections concurrently and closes them if ctx ends or one fails. It returns the sum of the
// results.
func (t *networkTest) each(ctx context.Context, all []net.Conn, do func(net.Conn) (int64, error)) (int64, error) {
	group, ctx := goroutine.WithContext(ctx)
	var total atomic.Int64
	for _, c := range all {
		stop := goroutine.AfterContext(ctx, func() { c.Close() }) //nolint:errcheck // its user gets an error
		group.Go(func() error {
			defer stop()
			n, err := do(c)
			total.Add(n)
			return err
		})
	}
	err := group.Wait()
	return total.Load(), err
}

// send waits for the partner and sends messages on all connections until the time is over.
func (t *networkTest) send(ctx context.Context) (sent int64, took time.Duration, err error) {
	all, err := t.accept(ctx)
	defer closeAll(all)
	if err != nil {
		return 0, 0, err
	}
	started := time.Now()
	deadline := started.Add(t.o.Runtime)
	sent, err = t.each(ctx, all, func(c net.Conn) (int64, error) { return t.sendOn(c, deadline) })
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return sent, time.Since(started), err
}

// accept waits for all connections from the partner. Others are closed. Nothing listens after it has returned.
func (t *networkTest) accept(ctx context.Context) (all []net.Conn, err error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: t.port})
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	stop := goroutine.AfterContext(ctx, func() {
		defer close(closed)
		listener.Close() //nolint:errcheck // Accept returns an error
	})
	defer func() {
		if stop() {
			err = errors.Join(err, listener.Close())
		} else {
			<-closed
		}
	}()
	limit := t.wait
	for len(all) < connections {
		if err := listener.SetDeadline(time.Now().Add(limit)); err != nil {
			return all, err
		}
		c, err := t.acceptFromPartner(listener)
		switch {
		case ctx.Err() != nil:
			return all, context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return all, fmt.Errorf("partner has opened %d of %d connections: no other within %v",
				len(all), connections, limit)
		case err != nil:
			return all, err
		}
		all, limit = append(all, c), t.silence
	}
	return all, nil
}

// acceptFromPartner closes connections until one comes from the partner.
func (t *networkTest) acceptFromPartner(listener net.Listener) (net.Conn, error) {
	for {
		c, err := listener.Accept()
		if err != nil || isFrom(c, t.partner) {
			return c, err
		}
		t.Log.Warn("connection of another host rejected", "remote", c.RemoteAddr().String())
		c.Close() //nolint:errcheck // nothing was sent
	}
}

func isFrom(c net.Conn, partner []netip.Addr) bool {
	remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return false
	}
	for _, address := range partner {
		if address.Unmap().WithZone("") == remote.Addr().Unmap().WithZone("") {
			return true
		}
	}
	return false
}

func closeAll(all []net.Conn) {
	for _, c := range all {
		c.Close() //nolint:errcheck // everything was acknowledged, or there is another error
	}
}

// sendOn sends messages on one connection until the time is over. It returns the bytes that the receiver has verified.
func (t *networkTest) sendOn(c net.Conn, deadline time.Time) (int64, error) {
	message := make([]byte, messageHeader+messageBytes)
	fill(message[messageHeader:], uint64(deadline.UnixNano()))
	number := uint64(0)
	for ; number == 0 || time.Now().Before(deadline); number++ {
		binary.LittleEndian.PutUint64(message[messageHeader:], mix(number)) // each message is different
		putHeader(message, number)
		if t.damage != nil {
			t.damage(message)
		}
		if err := t.extendDeadline(c); err != nil {
			return 0, err
		}
		if _, err := c.Write(message); err != nil {
			return 0, err
		}
	}
	end := message[:messageHeader]
	putHeader(end, number)
	if err := c.SetDeadline(time.Now().Add(t.drain)); err != nil {
		return 0, err
	}
	if _, err := c.Write(end); err != nil {
		return 0, err
	}
	answer := make([]byte, messageHeader)
	if _, err := io.ReadFull(c, answer); err != nil {
		return 0, fmt.Errorf("partner has not verified the data: %w", err)
	}
	if got := binary.LittleEndian.Uint64(answer); got != number {
		return 0, fmt.Errorf("partner has verified %d messages, want %d", got, number)
	}
	return int64(number) * messageBytes, nil
}

func putHeader(message []byte, number uint64) {
	binary.LittleEndian.PutUint64(message, number)
	binary.LittleEndian.PutUint32(message[8:], crc32.Checksum(message[messageHeader:], castagnoli))
	binary.LittleEndian.PutUint32(message[12:], uint32(len(message)-messageHeader))
}

// extendDeadline sets the time limit of the next operations on a connection.
func (t *networkTest) extendDeadline(c net.Conn) error {
	return c.SetDeadline(time.Now().Add(t.silence))
}

// receive connects to the partner, and verifies what it sends.
func (t *networkTest) receive(ctx context.Context) (received int64, took time.Duration, err error) {
	all, err := t.connect(ctx)
	defer closeAll(all)
	if err != nil {
		return 0, 0, err
	}
	started := time.Now()
	limit := t.o.Runtime + t.drain
	received, err = t.each(ctx, all, func(c net.Conn) (int64, error) { return t.receiveOn(c, started.Add(limit)) })
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return received, time.Since(started), err
}

// connect opens all connections. It waits until the partner accepts the first.
func (t *networkTest) connect(ctx context.Context) (all []net.Conn, err error) {
	started := time.Now()
	dialer := net.Dialer{Timeout: t.silence}
	address := net.JoinHostPort(t.o.Partner, strconv.Itoa(t.port))
	for len(all) < connections {
		c, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			all = append(all, c)
			continue
		}
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		if len(all) > 0 {
			return all, fmt.Errorf("connection %d of %d: %w", len(all)+1, connections, err)
		}
		if time.Since(started) >= t.wait {
			return all, fmt.Errorf("partner has not accepted connections within %v: %w", t.wait, err)
		}
		t.Log.Info("partner does not accept connections yet", "partner", t.o.Partner, "err", err)
		if pause.For(ctx, t.retry) != nil {
			return all, context.Cause(ctx)
		}
	}
	return all, nil
}

// receiveOn verifies the messages of one connection and returns the bytes.
func (t *networkTest) receiveOn(c net.Conn, deadline time.Time) (int64, error) {
	buffer := make([]byte, messageHeader+messageBytes)
	for number := uint64(0); ; number++ {
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("partner still sends %v after the end of this node's runtime of %v",
				t.drain, t.o.Runtime)
		}
		if err := t.extendDeadline(c); err != nil {
			return 0, err
		}
		header, data := buffer[:messageHeader], buffer[messageHeader:]
		if _, err := io.ReadFull(c, header); err != nil {
			return 0, fmt.Errorf("message %d: %w", number, err)
		}
		got, length := binary.LittleEndian.Uint64(header), binary.LittleEndian.Uint32(header[12:])
		if got != number || length != 0 && length != messageBytes {
			return 0, fmt.Errorf("got the header of message %d with %d bytes, want that of message %d",
				got, length, number)
		}
		if length == 0 && number == 0 {
			return 0, errors.New("partner has sent no data")
		} else if length == 0 {
			_, err := c.Write(header)
			return int64(number) * messageBytes, err
		}
		if _, err := io.ReadFull(c, data); err != nil {
			return 0, fmt.Errorf("message %d: %w", number, err)
		}
		sum, want := crc32.Checksum(data, castagnoli), binary.LittleEndian.Uint32(header[8:])
		if sum != want {
			return 0, fmt.Errorf("message %d has a wrong checksum: got %#08x, want %#08x", number, sum, want)
		}
	}
}
