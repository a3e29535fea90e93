// Package sntp asks a time server for the time, as a client that asks once and believes the first answer that is one to its
// question (SNTP version 4, RFC 4330). github.com/beevik/ntp speaks the protocol. There is no authentication and no clock
// discipline; whether a time is plausible is the caller's to judge.
package sntp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/beevik/ntp"

	"ironroot/internal/goroutine"
)

const (
	port = "123"
	// firstWait is the time after which a question is repeated; it doubles each time.
	firstWait = 500 * time.Millisecond
)

// Answer is a server's time.
type Answer struct {
	Time     time.Time // at the moment Received, half of the way there and back allowed for
	Received time.Time // by this machine's clock
}

// Now is the present time by the server's clock.
func (a Answer) Now() time.Time { return a.Time.Add(time.Since(a.Received)) }

// Offset is by how much this machine's clock is behind.
func (a Answer) Offset() time.Duration { return a.Time.Sub(a.Received) }

// Address splits the text that names a server into host and port: a name or an address, the port being 123 where none follows it.
func Address(text string) (host, service string) {
	if _, err := netip.ParseAddr(text); err == nil {
		return text, port
	}
	if host, service, err := net.SplitHostPort(text); err == nil && host != "" && service != "" {
		return host, service
	}
	return text, port
}

// Ask asks the server at a numeric address with port, and asks again where it is silent or somebody else answers, until ctx
// ends. The error names the server and says what was wrong with its answer, if there was any.
func Ask(ctx context.Context, address string) (Answer, error) {
	var odd error
	for wait := firstWait; ; wait *= 2 {
		answer, err := once(ctx, address, wait)
		if errors.Is(err, ntp.ErrServerResponseMismatch) {
			odd = err // perhaps forged by somebody who could not read the question
		}
		var silent net.Error
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil && odd != nil:
			return Answer{}, fmt.Errorf("time server %s: %w: %w", address, ctx.Err(), odd)
		case ctx.Err() != nil:
			return Answer{}, fmt.Errorf("time server %s: no answer: %w", address, ctx.Err())
		case !errors.Is(err, ntp.ErrServerResponseMismatch) && (!errors.As(err, &silent) || !silent.Timeout()):
			return Answer{}, fmt.Errorf("time server %s: %w", address, err)
		}
	}
}

// once sends one question, and returns after its answer, or after another packet and wait, or after wait.
func once(ctx context.Context, address string, wait time.Duration) (Answer, error) {
	over, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	response, err := ntp.QueryWithOptions(address, ntp.QueryOptions{
		Timeout: wait,
		Dialer: func(_, remote string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(over, "udp", remote)
			if err == nil {
				goroutine.AfterContext(over, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			}
			return conn, err
		},
	})
	if errors.Is(err, ntp.ErrServerResponseMismatch) {
		<-over.Done()
	}
	if err != nil {
		return Answer{}, err
	}
	received := time.Now()
	switch err := response.Validate(); {
	case errors.Is(err, ntp.ErrKissOfDeath):
		return Answer{}, fmt.Errorf("%w, code %q", err, response.KissCode)
	case err != nil:
		return Answer{}, fmt.Errorf("%w: stratum %d, leap indicator %d, %v from its reference", err,
			response.Stratum, response.Leap, response.RootDistance)
	}
	return Answer{Time: received.Round(0).Add(response.ClockOffset), Received: received}, nil
}
