// Package pause waits without holding up whoever ends a context.
package pause

import (
	"context"
	"time"
)

// For waits for d, or returns the error of ctx as soon as that ends. It does not wait where d is 0 or less.
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
