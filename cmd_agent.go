package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"ironroot/agent"
	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/agent/power"
)

// agentJournal is how many bytes of its log the agent keeps for Ironic to collect.
const agentJournal = 4 << 20

// agentCmd runs the deploy agent as an ordinary process.
type agentCmd struct {
	Args []string `kong:"-"` // everything after the word agent: main hands it over unparsed
}

const agentUsage = `Usage: ironroot agent [flags]

Run the deploy agent as an ordinary process. It refuses whatever would write to a disk, change the network or stop
the machine, unless started with --destructive.

Examples:
  ironroot agent --api_url https://ironic.example:6385 --insecure
  OS_DEFAULT__AGENT_TOKEN=$(openssl rand -hex 32) ironroot agent --standalone --listen-host 127.0.0.1

With --standalone the agent does not talk to Ironic. The command routes of its API ask for a token all the same: the
one given by --agent_token (better: in the environment or a file, where other users cannot read it), or, without it,
none that would fit. Kernel parameters (ipa-api-url=...) are read only
inside the ramdisk. The log goes to standard error.

Every flag may be spelled with _ or with -. Values come, lowest first, from the built-in default, files, the
environment (OS_DEFAULT__API_URL=...) and flags:

`

// Run starts the agent and serves until it is told to end by SIGINT or SIGTERM.
func (c *agentCmd) Run() error {
	options, err := config.Load(config.Sources{
		Args:       c.Args,
		Environ:    os.Environ(),
		Files:      []string{config.DefaultFile},
		ConfigDirs: []string{config.DefaultDir},
	})
	if errors.Is(err, config.ErrHelp) {
		fmt.Print(agentUsage)
		return config.Usage(os.Stdout)
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := journal.New(os.Stderr, &slog.LevelVar{}, agentJournal)
	return agent.Run(ctx, agent.Options{
		Config:      options,
		Journal:     log,
		Power:       power.Machine{Log: log.Logger()},
		Destructive: options.Destructive,
	})
}
