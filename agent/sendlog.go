package agent

import (
	"context"
	"crypto/tls"
	"os"

	"ironroot/agent/syslog"
	"ironroot/internal/goroutine"
)

// sendLog sends the log to the operator's syslog server until ctx ends, if the configuration names one.
func (a *agent) sendLog(ctx context.Context) {
	c := a.config.Get()
	transport, address := c.Syslog()
	if address == "" {
		return
	}
	var settings *tls.Config
	if transport == "tls" {
		var err error
		if settings, err = c.ClientTLS(a.log); err != nil {
			a.log.Error("log not sent to syslog server", "server", address, "err", err)
			return
		}
	}
	o := syslog.Options{
		Transport: transport, Address: address, TLS: settings, Dialer: a.o.Dialer, Machine: thisMachine{},
		Lines: a.o.Journal.Follow(syslog.Pending), Log: a.log,
	}
	goroutine.Go(func() error {
		syslog.Run(ctx, o)
		return nil
	}, nil)
}

// thisMachine implements [syslog.Machine].
type thisMachine struct{}

// Hostname implements [syslog.Machine].
func (thisMachine) Hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "(none)" { // the kernel's name of a machine without one
		return ""
	}
	return name
}
