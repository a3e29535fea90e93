package uevent

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv/nettest"
)

// kernel sends messages in place of the kernel. This needs a private network namespace.
func kernel(t *testing.T, messages ...string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // all messages are sent
	for _, message := range messages {
		err := unix.Sendto(fd, []byte(message), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup})
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // the queue of a receiver is full
			t.Fatalf("send %q: %v", message, err)
		}
	}
}

func listen(t *testing.T, queue int) *Socket {
	t.Helper()
	s, err := Listen(queue)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestNext(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	s := listen(t, 0)
	kernel(t, added, changed)
	for _, want := range []string{added, changed} {
		if got, err := s.Next(t.Context()); got != Parse([]byte(want)) || err != nil {
			t.Errorf("got %+v and %v, want %+v", got, err, Parse([]byte(want)))
		}
	}
}

// Drain discards everything that was queued, and nothing that follows.
func TestDrain(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	s := listen(t, 0)
	kernel(t, added, added, added)
	if err := s.Drain(); err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(); err != nil { // nothing to discard
		t.Fatal(err)
	}
	kernel(t, changed)
	if got, err := s.Next(t.Context()); got.Action != "change" || err != nil {
		t.Errorf("got %+v and %v, want the event that followed", got, err)
	}
}

func TestNextEndsWithContext(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	s := listen(t, 0)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(cause)
	if _, err := s.Next(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the context's end", err)
	}
}

// A context can end while Next returns a message. The messages after it can still be discarded.
func TestDrainAfterContext(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	s := listen(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	kernel(t, added)
	if err := s.Drain(); err != nil {
		t.Errorf("got %v, want the message discarded", err)
	}
}

// A full queue is reported. A larger queue, of the requested size, contains the same messages.
func TestLost(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	small, large := listen(t, 0), listen(t, 8<<20)
	messages := make([]string, 2000)
	for i := range messages {
		messages[i] = added + "FILL=" + string(bytes.Repeat([]byte{'x'}, 1000)) + "\x00"
	}
	kernel(t, messages...)
	for i := range messages {
		if _, err := large.Next(t.Context()); err != nil {
			t.Fatalf("message %d: got %v, want none lost", i+1, err)
		}
	}
	lost := 0
	for got := 0; lost == 0; got++ {
		switch _, err := small.Next(t.Context()); {
		case errors.Is(err, ErrLost):
			lost++
		case err != nil:
			t.Fatal(err)
		case got == len(messages):
			t.Fatalf("got all %d messages, want some lost", len(messages))
		}
	}
	if err := small.Drain(); err != nil {
		t.Fatal(err)
	}
	kernel(t, changed)
	if got, err := small.Next(t.Context()); got.Action != "change" || err != nil {
		t.Errorf("got %+v and %v, want the next event", got, err)
	}
}
