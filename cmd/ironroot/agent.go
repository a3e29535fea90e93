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
	// Args are all arguments after the name of the command.
	Args []string `arg:"" optional:"" name:"flag" help:"See ironroot agent --help."`
}

const agentUsage = `Usage: ironroot agent [flags]

Run the deploy agent as an ordinary process. It refuses whatever would write to a disk, change the network or stop
the machine, unless started with --destructive.

Examples:
  # As a node of this Ironic: look up, heartbeat, list steps; nothing is written.
  ironroot agent --api-url https://ironic.example:6385 --cafile /etc/ssl/ironic.pem

  # Without Ironic, on loopback, with a token of your own: list the steps for cleaning.
  export OS_DEFAULT__AGENT_TOKEN=$(openssl rand -hex 32)
  ironroot agent --standalone --listen-host 127.0.0.1 &
  curl --retry 5 --retry-connrefused -d '{"name": "clean.get_clean_steps", "params": {"node": {}, "ports": []}}' \
       "http://127.0.0.1:9999/v1/commands/?wait=true&agent_token=$OS_DEFAULT__AGENT_TOKEN"

  # The reference of all options, including those of configuration files, as Markdown.
  ironroot agent --reference

With --standalone, too, requests for commands must contain the token. Without agent_token every token is rejected. Set
it in the environment or in a file: other users of the machine can read flags.

Flags can be spelled with _ or -. A boolean flag that is on by default is turned off with =false. The values of later
sources replace those of earlier ones: built-in defaults, files, environment (OS_DEFAULT__API_URL=...), flags. Kernel
parameters (ipa-api-url=...) are read only inside the ramdisk. The log goes to standard error.

`

// Run starts the agent and serves until the process receives SIGINT or SIGTERM.
func (c *agentCmd) Run() error {
	if slices.Equal(c.Args, []string{"--reference"}) {
		return config.Reference(os.Stdout)
	}
	return asProcess(c.Args, agentUsage, func(ctx context.Context, options *config.Config, log *journal.Journal) error {
		err := agent.Run(ctx, agent.Options{
			Config:      options,
			Journal:     log,
			Machine:     agent.Machine{Power: power.Machine{Log: log.Logger()}},
			Destructive: options.Destructive,
		})
		if errors.Is(err, agent.ErrRescue) {
			log.Logger().Info("agent ended", "reason", err)
			return nil
		}
		return err
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
