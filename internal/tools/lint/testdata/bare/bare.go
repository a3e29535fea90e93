// Package bare starts goroutines in every way that lint rejects.
package bare

import (
	"context"
	"sync"
	clock "time"

	"golang.org/x/sync/errgroup"
)

func start(ctx context.Context) {
	go func() {}()
	var all sync.WaitGroup
	all.Go(func() {})
	var group errgroup.Group
	group.Go(func() error { return nil })
	clock.AfterFunc(clock.Second, func() {
		go start(ctx)
	})
	context.AfterFunc(ctx, func() {})
	var once sync.Once // starts nothing
	once.Do(func() {})
}
