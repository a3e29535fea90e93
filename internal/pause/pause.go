// Package pause provides waits that end with a context.
package pause

import (
	"context"
	"time"
)

// For waits for d and returns nil, or returns the error of ctx as soon as ctx ends. It does not wait if d is 0 or less.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until waits until a channel is closed and returns nil, or returns the error of ctx as soon as ctx ends. A nil channel
// counts as closed.
func Until(ctx context.Context, closed <-chan struct{}) error {
	if Closed(closed) {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Closed reports whether a channel is closed. A nil channel counts as closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return c == nil
	}
}
