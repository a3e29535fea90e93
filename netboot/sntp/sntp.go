// Package sntp is a client for a single query to a time server (SNTP version 4, RFC 4330). It accepts the first reply
// that matches the query. github.com/beevik/ntp implements the protocol. There is no authentication and no clock
// discipline; callers check whether the time is plausible.
package sntp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/beevik/ntp"

	"ironroot/internal/goroutine"
)

const (
	// Port is the default port of a time server.
	Port = "123"
	// firstWait is the time after which a query is first repeated. It doubles after each query.
	firstWait = 500 * time.Millisecond
)

// Answer is the reply of a time server.
type Answer struct {
	Time     time.Time // server's time at Received, corrected by half of the round trip
	Received time.Time // by this machine's clock
}

// Now returns the current time by the server's clock.
func (a Answer) Now() time.Time { return a.Time.Add(time.Since(a.Received)) }

// Offset returns by how much this machine's clock is behind the server's.
func (a Answer) Offset() time.Duration { return a.Time.Sub(a.Received) }

// Ask queries the server at a numeric address with port. It repeats the query until ctx ends if there is no reply or
// one that does not match the query. The error names the server and the problem with its reply, if there was any.
func Ask(ctx context.Context, address string) (Answer, error) {
	var mismatch error
	for wait := firstWait; ; wait *= 2 {
		answer, err := once(ctx, address, wait)
		if errors.Is(err, ntp.ErrServerResponseMismatch) {
			mismatch = err // possibly forged by a sender that could not read the query
		}
		var silent net.Error
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil && mismatch != nil:
			return Answer{}, fmt.Errorf("time server %s: %w: %w", address, ctx.Err(), mismatch)
		case ctx.Err() != nil:
			return Answer{}, fmt.Errorf("time server %s: no answer: %w", address, ctx.Err())
		case !errors.Is(err, ntp.ErrServerResponseMismatch) && (!errors.As(err, &silent) || !silent.Timeout()):
			return Answer{}, fmt.Errorf("time server %s: %w", address, err)
		}
	}
}

// once sends a query. It returns after the matching reply, or after wait if there is none.
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
