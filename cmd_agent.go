package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"ironroot/agent"
	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/agent/power"
)

// agentJournal is the number of bytes of the log that the agent keeps for Ironic.
const agentJournal = 4 << 20

// agentCmd runs the deploy agent as an ordinary process.
type agentCmd struct {
	Args []string `kong:"-"` // everything after the word agent: main hands it over unparsed
}

const agentUsage = `Usage: ironroot agent [flags]

Run the deploy agent as an ordinary process. It refuses whatever would write to a disk, change the network or stop
the machine, unless started with --destructive.

Examples:
  # As a node of this Ironic: look up, heartbeat, list steps; nothing is written.
  ironroot agent --api-url https://ironic.example:6385 --cafile /etc/ssl/ironic.pem

  # Without Ironic, on loopback, with a token of one's own; then ask it.
  export OS_DEFAULT__AGENT_TOKEN=$(openssl rand -hex 32)
  ironroot agent --standalone --listen-host 127.0.0.1 &
  curl -X POST "http://127.0.0.1:9999/v1/commands/?wait=true&agent_token=$OS_DEFAULT__AGENT_TOKEN" \
       -d '{"name": "poll.get_hardware_info", "params": {}}'

  # The reference of all options, those of configuration files too, as Markdown.
  ironroot agent --reference

The command routes of the API ask for a token with --standalone too: the one given by agent_token, or, without it,
none that would fit. Give it in the environment or a file: other users of the machine can read flags.

Every flag may be spelled with _ or with -; a switch that is on by default is turned off by =false. Values come, lowest
first, from the built-in default, files, the environment (OS_DEFAULT__API_URL=...) and flags. Kernel parameters
(ipa-api-url=...) are read only inside the ramdisk. The log goes to standard error.

`

// Run starts the agent and serves until the process receives SIGINT or SIGTERM.
func (c *agentCmd) Run() error {
	if slices.Equal(c.Args, []string{"--reference"}) {
		return config.Reference(os.Stdout)
	}
	return asProcess(c.Args, agentUsage, func(ctx context.Context, options *config.Config, log *journal.Journal) error {
		return agent.Run(ctx, agent.Options{
			Config:      options,
			Journal:     log,
			Power:       power.Machine{Log: log.Logger()},
			Destructive: options.Destructive,
		})
	})
}

// asProcess runs f with the configuration of an ordinary process: flags, environment and the default files. The
// context of f ends when the process receives SIGINT or SIGTERM. If the flags request help, asProcess prints the usage
// and does not call f.
func asProcess(args []string, usage string, f func(context.Context, *config.Config, *journal.Journal) error) error {
	options, err := config.Load(config.Sources{
		Args:       args,
		Environ:    os.Environ(),
		Files:      []string{config.DefaultFile},
		ConfigDirs: []string{config.DefaultDir},
	})
	if errors.Is(err, config.ErrHelp) {
		fmt.Print(usage)
		return config.Usage(os.Stdout)
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := journal.New(os.Stderr, &slog.LevelVar{}, agentJournal)
	slog.SetDefault(log.Logger()) // contained panics are logged there, and secrets are redacted
	return f(ctx, options, log)
}
