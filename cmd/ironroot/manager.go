package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"

	"ironroot/agent/hardware/external"
)

// managerCmd has the commands for hardware managers that are executables.
type managerCmd struct {
	Check managerCheckCmd `cmd:"" help:"Check that an executable conforms to the protocol of hardware managers."`
}

// managerCheckCmd checks an executable.
type managerCheckCmd struct {
	File string `arg:"" type:"existingfile" help:"Executable to check. It runs on this machine, with your permissions and outside of manager roots."`
	Step string `name:"run" placeholder:"KIND.STEP" help:"Step to run as well, for example clean.update_firmware."`
	Args string `placeholder:"JSON" help:"Arguments of that step, a JSON object."`
	Root bool   `help:"Limit describe and evaluate to 50 s instead of 10 s, as for a manager in a manager root."`
}

// Run checks the executable.
func (c *managerCheckCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return external.Check(ctx, c.File, external.CheckOptions{
		Out: os.Stdout, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Step: c.Step, Args: c.Args, Root: c.Root,
	})
}
