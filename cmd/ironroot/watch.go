package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"ironroot/watch"
)

// watchCmd shows the progress of nodes.
type watchCmd struct {
	Nodes    []string      `arg:"" optional:"" name:"node" help:"Names or UUIDs of nodes. The command ends when none of them changes any more, and fails if one has failed. Without one, all nodes that Ironic changes are shown until the command is interrupted."`
	URL      string        `placeholder:"URL" help:"Ironic without Keystone, with HTTP basic authentication if OS_USERNAME and OS_PASSWORD are set. Otherwise the variables of the openstack command are used: OS_CLOUD, or OS_AUTH_URL and others, or OS_AUTH_TYPE=none or http_basic with OS_ENDPOINT."`
	CACert   string        `name:"cacert" placeholder:"PEM" help:"File with the trusted certificate authorities (default: OS_CACERT, otherwise the system's)."`
	Insecure bool          `help:"Do not verify certificates."`
	Interval time.Duration `default:"5s" help:"Time between two requests (default: 5s)."`

	out io.Writer
}

// Run shows the nodes: as progress bars on a terminal, otherwise as a line for each change.
func (c *watchCmd) Run() error {
	if c.Interval < time.Second {
		return errors.New("--interval: want at least 1s")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	source, err := watch.Connect(ctx, watch.Access{
		URL: c.URL, CAFile: c.CACert, Insecure: c.Insecure, Warnings: os.Stderr,
	})
	if err != nil {
		return err
	}
	err = watch.Run(ctx, watch.Options{Source: source, Display: c.display(), Names: c.Nodes, Interval: c.Interval})
	if errors.Is(err, context.Canceled) {
		return nil // by the user
	}
	return err
}

// minColumns is the width of a terminal, in characters, from which on it has space for bars.
const minColumns = 60

func (c *watchCmd) display() watch.Display {
	if c.out != nil {
		return watch.NewLines(c.out)
	}
	columns, rows, err := term.GetSize(int(os.Stdout.Fd()))
	if err == nil && columns >= minColumns && rows > 1 { // some terminals do not know their size
		return watch.NewBars(os.Stdout)
	}
	return watch.NewLines(os.Stdout)
}
