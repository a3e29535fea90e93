package main

import (
	"context"

	"ironroot/agent"
	"ironroot/agent/config"
	"ironroot/agent/journal"
)

// collectCmd posts inspection data without running an agent. It has the agent's flags and configuration files.
type collectCmd struct {
	// Args are all arguments after the name of the command.
	Args []string `arg:"" optional:"" name:"flag" help:"See ironroot collect --help."`
}

const collectUsage = `Usage: ironroot collect [flags]

Collect inspection data of this machine and post it to Ironic: once, or with --introspection-daemon about every
introspection_daemon_post_interval seconds (300; set it in a file). Nothing is looked up, served or written.

Examples:
  ironroot collect --inspection-callback-url https://ironic.example:6385/v1/continue_inspection
  ironroot collect --introspection-daemon --api-url https://ironic.example:6385 --inspection-collectors ` +
	`default,pci-devices

Flags, files and environment are those of "ironroot agent". The log goes to standard error.

`

// Run collects and posts the data. As a daemon it repeats this until the process receives SIGINT or SIGTERM.
func (c *collectCmd) Run() error {
	return asProcess(c.Args, collectUsage,
		func(ctx context.Context, options *config.Config, log *journal.Journal) error {
			return agent.Collect(ctx, agent.Options{Config: options, Journal: log})
		})
}
