package agent

import (
	"context"
	"errors"
	"math/rand/v2"

	"ironroot/agent/inspection"
)

// Collect runs an inspection and posts its data, without lookup, API and heartbeats. It returns the error of a failure.
// With introspection_daemon it repeats the inspection until ctx ends, logs failures, and returns nil.
func Collect(ctx context.Context, o Options) error {
	a := newAgent(o)
	defer a.close()
	if err := a.configure(ctx); err != nil {
		return err
	}
	c := a.config.Get()
	if a.ironic == nil || !inspection.Enabled(c) {
		return errors.New("post inspection data: no URL: set inspection_callback_url, or api_url and " +
			"inspection_collectors")
	}
	if err := a.loadHardware(ctx); err != nil {
		return err
	}
	once := func(ctx context.Context) error {
		uuid, err := a.runInspection(ctx)
		if err == nil {
			a.log.Info("inspection data posted", "node", uuid)
		}
		return err
	}
	if !c.IntrospectionDaemon {
		return once(ctx)
	}
	inspection.Repeat(ctx, c.IntrospectionDaemonPostInterval, rand.Float64, a.log, once)
	return nil
}
