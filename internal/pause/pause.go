// Package pause provides a sleep that ends with a context.
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
