//go:build linux

// Package login asks for a user and a password on the consoles of the machine, and then starts a shell there. It needs
// no network.
//
// The prompts are a process of their own, a [worker], which ends together with all shells and what they have started.
package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"ironroot/internal/goroutine"
	"ironroot/uinit/account"
	"ironroot/uinit/worker"
)

// Options are the options of the prompts.
type Options struct {
	Terminals []string // paths of their devices
	Accounts  account.List
	Log       *slog.Logger
}

// config is the input of the process. It contains secrets.
type config struct {
	Terminals []string
	Accounts  account.List
}

// Check implements [worker.Input].
func (c *config) Check() error { return c.Accounts.Check() }

// Prompts are the running prompts.
type Prompts struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // set before ended is closed
}

// Start shows prompts on the terminals until ctx ends or Stop is called. A terminal that cannot be opened is logged and
// tried again.
func Start(ctx context.Context, o Options) (*Prompts, error) {
	if err := o.Accounts.Check(); err != nil {
		return nil, fmt.Errorf("start login prompts: %w", err)
	}
	if !o.Accounts.HasPasswords() {
		return nil, errors.New("start login prompts: nobody can log in: no account has a password")
	}
	input, err := json.Marshal(config{o.Terminals, o.Accounts})
	if err != nil {
		return nil, fmt.Errorf("start login prompts: %w", err)
	}
	p := &Prompts{ended: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	goroutine.Go(func() error {
		return worker.Keep(ctx, worker.Spec{Name: childName, Input: input, Log: o.Log})
	}, func(err error) {
		p.err = err
		close(p.ended)
	})
	return p, nil
}

// Stop ends the prompts, all shells and everything that users have started in them. If the kernel does not end a
// process, the error wraps confine.ErrStillRunning.
func (p *Prompts) Stop() error {
	p.cancel()
	<-p.ended
	return p.err
}
