package command

import (
	"context"
	"net/netip"
)

// Caller describes the connection on which a command was requested. IPv4 addresses are not mapped into IPv6.
type Caller struct {
	Remote netip.Addr // of the client
	Local  netip.Addr // of this machine
}

type callerKey struct{}

// WithCaller returns a context whose commands are requested by c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of a command, from the context of its Run. There is none if the command was not requested
// on a connection.
func CallerOf(ctx context.Context) (c Caller, ok bool) {
	c, ok = ctx.Value(callerKey{}).(Caller)
	return c, ok
}
