package iscsi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/storage/sysfs"
)

// Messages of NETLINK_ISCSI (enum iscsi_uevent_e in the kernel's scsi/iscsi_if.h): requests, and the kernel's events.
const (
	createSession     = 11
	destroySession    = 12
	createConnection  = 13
	destroyConnection = 14
	bindConnection    = 15
	setParameter      = 16
	startConnection   = 17
	stopConnection    = 18
	sendPDU           = 19
	unbindSession     = 27

	eventPDU       = 101
	eventError     = 102
	eventInterface = 103 // the answer to a request that failed
)

// Flags of stopConnection.
const (
	stopForever   = 1 // STOP_CONN_TERM
	stopToRecover = 3 // STOP_CONN_RECOVER
)

// Parameters of setParameter (enum iscsi_param).
const (
	paramMaxReceive      = 0
	paramMaxSend         = 1
	paramHeaderDigest    = 2
	paramDataDigest      = 3
	paramInitialR2T      = 4
	paramMaxR2T          = 5
	paramImmediateData   = 6
	paramFirstBurst      = 7
	paramMaxBurst        = 8
	paramPDUInOrder      = 9
	paramSequenceInOrder = 10
	paramRecoveryLevel   = 11
	paramExpStatSN       = 14
	paramTargetName      = 15
	paramPortalGroup     = 16
	paramAddress         = 17
	paramPort            = 18
	paramRecoveryTimeout = 19
	paramFastAbort       = 26
	paramAbortTimeout    = 27
	paramResetTimeout    = 28
	paramPingTimeout     = 30
	paramReceiveTimeout  = 31
	paramInitiatorName   = 34
)

// The layout of struct iscsi_uevent: type, error, handle of the transport, 24 bytes of the request, 16 of the answer.
const (
	messageHeader = unix.SizeofNlMsghdr
	messageSize   = 56
	requestAt     = 16
	answerAt      = 40
	maxMessage    = 64 << 10
	eventsGroup   = 1 // ISCSI_NL_GRP_ISCSID
)

// answerTimeout limits the time between a request that the kernel has handled and its answer.
const answerTimeout = 30 * time.Second

// kernel is a socket to the kernel's initiator.
type kernel struct {
	file   *os.File
	handle uint64 // of the transport tcp

	request sync.Mutex // one request at a time
	answers chan answer

	mu       sync.Mutex
	sessions map[uint32]chan event // by number
	broken   error                 // why nothing is received any more
	ended    chan struct{}         // closed with broken
}

// answer is the kernel's answer to a request.
type answer struct {
	kind    uint16
	failed  uint32 // errno, 0 for none
	message [messageSize]byte
}

// event is a report of the kernel about a session: a PDU, or an error of the connection.
type event struct {
	header header
	data   []byte
	err    uint32 // enum iscsi_err, 0 for a PDU
}

// openKernel opens the initiator. The module iscsi_tcp must be loaded.
func openKernel(s sysfs.Root) (*kernel, error) {
	text, err := os.ReadFile(s.Sys("class/iscsi_transport/tcp/handle"))
	if err != nil {
		return nil, fmt.Errorf("open the kernel's iSCSI initiator: %w", err)
	}
	handle, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's iSCSI initiator: handle of the transport: %w", err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ISCSI)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's iSCSI initiator: socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: eventsGroup}); err != nil {
		return nil, fmt.Errorf("open the kernel's iSCSI initiator: bind: %w", errors.Join(err, unix.Close(fd)))
	}
	return newKernel(fd, handle), nil
}

// newKernel returns an initiator of a socket that does not block.
func newKernel(fd int, handle uint64) *kernel {
	k := &kernel{
		file: os.NewFile(uintptr(fd), "iscsi"), handle: handle, answers: make(chan answer, 1),
		sessions: map[uint32]chan event{}, ended: make(chan struct{}),
	}
	goroutine.Go(k.receive, func(err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.broken = fmt.Errorf("kernel's iSCSI initiator: %w", err)
		close(k.ended)
	})
	return k
}

// receive distributes the kernel's messages until the socket is closed.
func (k *kernel) receive() error {
	buffer := make([]byte, maxMessage)
	for {
		n, err := k.file.Read(buffer)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			k.lost()
		case err != nil:
			return err
		default:
			k.distribute(buffer[:n])
		}
	}
}

// lost reports an error of every connection: one of them may be among the messages that the kernel has dropped.
func (k *kernel) lost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, events := range k.sessions {
		deliver(events, event{err: errMessagesLost})
	}
}

// distribute handles the messages of a datagram.
func (k *kernel) distribute(datagram []byte) {
	for len(datagram) >= messageHeader+messageSize {
		length := int(binary.NativeEndian.Uint32(datagram))
		if length < messageHeader+messageSize || length > len(datagram) {
			return
		}
		k.message(binary.NativeEndian.Uint16(datagram[4:]), datagram[messageHeader:length])
		datagram = datagram[min((length+3)&^3, len(datagram)):]
	}
}

func (k *kernel) message(kind uint16, body []byte) {
	var own answer
	own.kind = kind
	copy(own.message[:], body)
	e := event{}
	switch event := binary.NativeEndian.Uint32(body); event {
	case eventPDU:
		payload := body[messageSize:]
		if len(payload) < headerSize {
			return
		}
		e.header, e.data = header(payload), append([]byte(nil), payload[headerSize:]...)
	case eventError:
		e.err = max(1, binary.NativeEndian.Uint32(body[answerAt+8:]))
	case eventInterface:
		own.failed = max(1, -binary.NativeEndian.Uint32(body[4:])&0xffff)
		k.answer(own)
		return
	default:
		if uint32(kind) == event { // other events, such as the event of a new session, have the kind 0
			k.answer(own)
		}
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if events := k.sessions[binary.NativeEndian.Uint32(body[answerAt:])]; events != nil {
		deliver(events, e)
	}
}

// answer passes an answer on. One that nobody waits for any more is dropped.
func (k *kernel) answer(a answer) {
	select {
	case k.answers <- a:
	default:
	}
}

// eventQueue is the number of events that a session can leave unread. Targets send few PDUs that are not the kernel's.
const eventQueue = 64

// deliver queues an event. If the queue is full, the session learns that its connection has failed.
func deliver(events chan event, e event) {
	for {
		select {
		case events <- e:
			return
		default:
		}
		e = event{err: errMessagesLost}
		select {
		case <-events:
		default:
		}
	}
}

// failure returns why nothing is received any more, a nil error if messages are received.
func (k *kernel) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

// do sends a request and returns the kernel's answer. The kernel handles a request before it accepts the next one, and
// can block while it removes a disk: if ctx ends first, the request continues in the background.
func (k *kernel) do(ctx context.Context, what string, kind uint16, request []byte, payload ...[]byte) (answer, error) {
	var a answer
	done := make(chan error, 1)
	goroutine.Go(func() (err error) {
		a, err = k.send(ctx, kind, request, payload)
		return err
	}, func(err error) { done <- err })
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		return answer{}, fmt.Errorf("kernel's iSCSI initiator: %s: %w", what, context.Cause(ctx))
	}
	if err != nil {
		return answer{}, fmt.Errorf("kernel's iSCSI initiator: %s: %w", what, err)
	}
	return a, nil
}

// send sends a request, unless ctx has ended, and waits for the answer.
func (k *kernel) send(ctx context.Context, kind uint16, request []byte, payload [][]byte) (answer, error) {
	k.request.Lock()
	defer k.request.Unlock()
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	select {
	case <-k.answers: // it came too late
	default:
	}
	message := make([]byte, messageHeader+messageSize)
	for _, part := range payload {
		message = append(message, part...)
	}
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], kind)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST)
	body := message[messageHeader:]
	binary.NativeEndian.PutUint32(body, uint32(kind))
	binary.NativeEndian.PutUint64(body[8:], k.handle)
	copy(body[requestAt:answerAt], request)
	if _, err := k.file.Write(message); err != nil {
		return answer{}, err
	}
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	for {
		select {
		case a := <-k.answers:
			switch {
			case a.kind != kind:
				continue // it came too late
			case a.failed != 0:
				return answer{}, unix.Errno(a.failed)
			}
			return a, nil
		case <-k.ended:
			return answer{}, k.failure()
		case <-timeout.C:
			return answer{}, fmt.Errorf("no answer within %v", answerTimeout)
		}
	}
}

// returned returns the kernel's result in an answer: 0, or a negative errno.
func returned(a answer, err error, what string) error {
	if err != nil {
		return err
	}
	if code := int32(binary.NativeEndian.Uint32(a.message[answerAt:])); code != 0 {
		return fmt.Errorf("kernel's iSCSI initiator: %s: %w", what, unix.Errno(max(1, -code)))
	}
	return nil
}

// words encodes 32-bit words of a request.
func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

const (
	commands   = 128 // in flight for a session
	queueDepth = 32  // commands in flight for a disk
)

// createSession creates a session with one connection, number 0, and returns the numbers of session and SCSI host. The
// session's events are queued from then on.
func (k *kernel) createSession(ctx context.Context) (session, host uint32, events <-chan event, err error) {
	request := append(words(1), binary.NativeEndian.AppendUint16(
		binary.NativeEndian.AppendUint16(nil, commands), queueDepth)...)
	a, err := k.do(ctx, "create session", createSession, request)
	if err != nil {
		return 0, 0, nil, err
	}
	session = binary.NativeEndian.Uint32(a.message[answerAt:])
	host = binary.NativeEndian.Uint32(a.message[answerAt+4:])
	queue := make(chan event, eventQueue)
	k.mu.Lock()
	k.sessions[session] = queue
	k.mu.Unlock()
	if _, err := k.do(ctx, "create connection", createConnection, words(session, 0)); err != nil {
		removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return 0, 0, nil, errors.Join(err, k.destroySession(removing, session))
	}
	return session, host, queue, nil
}

// bind gives a TCP connection to a session. The kernel holds the socket until the connection is stopped. If ctx ends
// first, a request that was written continues in the background, and one that was not is dropped: after a later stop,
// it would attach the socket again. bind closes the file when the kernel has handled the request, or it was dropped.
func (k *kernel) bind(ctx context.Context, session uint32, file *os.File) error {
	const what = "bind connection"
	request := append(binary.NativeEndian.AppendUint64(words(session, 0), uint64(file.Fd())), words(1)...)
	done := make(chan error, 1)
	goroutine.Go(func() error {
		defer file.Close() //nolint:errcheck // the kernel has its own reference to the socket
		a, err := k.send(ctx, bindConnection, request, nil)
		if err != nil {
			return fmt.Errorf("kernel's iSCSI initiator: %s: %w", what, err)
		}
		return returned(a, nil, what)
	}, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("kernel's iSCSI initiator: %s: %w", what, context.Cause(ctx))
	}
}

func (k *kernel) set(ctx context.Context, session uint32, param int, value string) error {
	what := fmt.Sprintf("set parameter %d", param)
	text := value + "\x00"
	a, err := k.do(ctx, what, setParameter, words(session, 0, uint32(param), uint32(len(text))), []byte(text))
	return returned(a, err, what)
}

func (k *kernel) start(ctx context.Context, session uint32) error {
	a, err := k.do(ctx, "start connection", startConnection, words(session, 0))
	return returned(a, err, "start connection")
}

// stop ends the connection of a session.
func (k *kernel) stop(ctx context.Context, session uint32, flag uint32) error {
	a, err := k.do(ctx, "stop connection", stopConnection, append(words(session, 0, 0, 0), words(flag)...))
	return returned(a, err, "stop connection")
}

// unbind starts to remove the disks of a session.
func (k *kernel) unbind(ctx context.Context, session uint32) error {
	_, err := k.do(ctx, "unbind session", unbindSession, words(session, 0))
	return err
}

func (k *kernel) destroyConnection(ctx context.Context, session uint32) error {
	a, err := k.do(ctx, "destroy connection", destroyConnection, words(session, 0))
	return returned(a, err, "destroy connection")
}

// destroySession removes a session, whose connection must be destroyed before, and its disks.
func (k *kernel) destroySession(ctx context.Context, session uint32) error {
	k.mu.Lock()
	delete(k.sessions, session)
	k.mu.Unlock()
	_, err := k.do(ctx, "destroy session", destroySession, words(session, 0))
	return err
}

// sendPDU sends a PDU on the connection of a session.
func (k *kernel) sendPDU(ctx context.Context, session uint32, h header, data []byte) error {
	a, err := k.do(ctx, "send PDU", sendPDU, words(session, 0, headerSize, uint32(len(data))), h[:], data)
	return returned(a, err, "send PDU")
}
