//go:build linux

// Command agentinit is the /init of a machine in which the agent is started as often as needed, each time with another
// kernel command line and other configuration files. It serves the requests of ironroot/lab/ipa.Control. Everything
// else is as in the ramdisk.
//
//go:debug fips140=off
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/agent"
	"ironroot/agent/config"
	"ironroot/internal/goroutine"
	"ironroot/lab/ipa"
	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		// AgentWith sets up the network and calls this function before it would run the agent. serve runs the agents of
		// the scenarios with the same network until the machine stops.
		return boot.AgentWith(func(o *agent.Options) {
			o.Machine.Media = nil
			if err := serve(ctx, *o, m.Log); err != nil {
				m.Log.Error("control ended", "err", err)
			}
		})(ctx, m)
	})
}

// serve starts and stops agents on request until ctx ends.
func serve(ctx context.Context, options agent.Options, log *slog.Logger) error {
	c := &control{ctx: ctx, options: options, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /start", c.start)
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { c.stop() })
	mux.HandleFunc("POST /sync", func(http.ResponseWriter, *http.Request) { unix.Sync() })
	mux.HandleFunc("GET /log", func(http.ResponseWriter, *http.Request) {}) // the log is on the console
	server := &http.Server{Addr: fmt.Sprintf(":%d", ipa.ControlPort), Handler: mux}
	failed := make(chan error, 1)
	goroutine.Go(func() error { return server.ListenAndServe() }, func(err error) { failed <- err })
	if err := waitAddress(ctx); err != nil {
		return err
	}
	fmt.Println("ipa-control: ready")
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitAddress waits until a link has an IPv4 address that others can reach.
func waitAddress(ctx context.Context) error {
	updates := make(chan netlink.AddrUpdate)
	options := netlink.AddrSubscribeOptions{ListExisting: true}
	if err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), options); err != nil {
		return err
	}
	for {
		select {
		case update := <-updates:
			if ip := update.LinkAddress.IP; update.NewAddr && ip.To4() != nil && !ip.IsLoopback() {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// control runs one agent at a time.
type control struct {
	ctx     context.Context //nolint:containedctx // of the machine; a request's context ends with the request
	options agent.Options
	log     *slog.Logger

	mu     sync.Mutex
	cancel context.CancelFunc // nil before the first start
	ended  chan struct{}
}

// start ends a running agent and starts one.
func (c *control) start(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Cmdline string
		Files   map[string]string
	}
	err := json.NewDecoder(r.Body).Decode(&request)
	if err == nil {
		c.stop()
		err = c.run(request.Cmdline, request.Files)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (c *control) run(cmdline string, files map[string]string) error {
	var paths []string
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		paths = append(paths, path)
	}
	settings, err := config.Load(config.Sources{Params: config.ParseCmdline(cmdline), Files: paths})
	if err != nil {
		return err
	}
	options := c.options
	options.Config = settings
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	c.cancel, c.ended = cancel, ended
	goroutine.Go(func() error { return agent.Run(ctx, options) }, func(err error) {
		if !errors.Is(err, context.Canceled) {
			c.log.Error("agent ended", "err", err)
		}
		close(ended)
	})
	return nil
}

// stop ends the agent and waits until it has ended.
func (c *control) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel == nil {
		return
	}
	c.cancel()
	<-c.ended
	c.cancel = nil
}
