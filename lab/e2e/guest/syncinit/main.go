//go:build linux

// Command syncinit is the /init of a machine that loses its power. It writes a file to the FAT file system on
// /dev/vda, runs the agent's standby.sync unless the kernel parameter nosync=1 is set, and prints a line.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/agent/command"
	"ironroot/agent/config"
	"ironroot/agent/extension"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/generic"
	"ironroot/agent/power"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		err := run(ctx, m)
		if err != nil {
			fmt.Printf("FAILED %v\n", err)
		}
		return err
	})
}

func run(ctx context.Context, m *boot.Machine) error {
	if err := unix.Mount("/dev/vda", "/mnt", "vfat", 0, ""); err != nil {
		return fmt.Errorf("mount /dev/vda: %w", err)
	}
	if err := os.WriteFile("/mnt/content", bytes.Repeat([]byte("0123456789abcde\n"), 1<<16), 0o600); err != nil {
		return err
	}
	if m.Params["nosync"] == "1" {
		fmt.Println("WRITTEN")
		return nil
	}
	record, err := sync(ctx, m)
	if err != nil {
		return err
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	fmt.Printf("SYNCED %s\n", text)
	return nil
}

// withNull lists the disks of the machine and one that refuses to flush.
type withNull struct{}

// Disks implements [block.Lister].
func (withNull) Disks(ctx context.Context) ([]block.Device, error) {
	disks, err := block.Disks(ctx, sysfs.Root{})
	return append(disks, block.Device{Name: "null", Path: "/dev/null"}), err
}

// running is a machine that does not stop.
type running struct{}

func (running) SetClocks(context.Context) error { return nil }
func (running) Detach(context.Context)          {}
func (running) PoweringOff()                    {}

// sync runs the command as the API does.
func sync(ctx context.Context, m *boot.Machine) (*command.Record, error) {
	settings, err := config.Load(config.Sources{Params: m.Params})
	if err != nil {
		return nil, err
	}
	live := config.NewLive(settings)
	manager := generic.New(generic.Options{
		Config: live, Log: m.Log, Disks: withNull{},
	})
	managers, err := hardware.Load(ctx, []hardware.Manager{manager}, m.Log)
	if err != nil {
		return nil, err
	}
	extensions := extension.All(extension.Deps{
		Config: live, Managers: managers, Power: power.Refused{}, Journal: m.Journal, Log: m.Log, Stop: running{},
	})
	return command.NewRegistry(extensions,
		command.Options{AllowDestructive: true, Log: m.Log}).Execute(ctx, "standby.sync", nil)
}
