//go:build linux

// Command plain is the /init of a machine that is described twice: by the agent's inventory, and by Debian's lscpu,
// which is in its ramdisk below /debian. It omits the disks and adds the kernel's list of modules. It prints a line
// "FACT NAME BASE64" for each result.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/node"
	"ironroot/storage/block"
	"ironroot/uinit/boot"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		if err := run(ctx, m); err != nil {
			fmt.Printf("FACTS-FAILED %v\n", err)
			return err
		}
		fmt.Println("FACTS-DONE")
		return nil
	})
}

// noDisks is a machine without disks.
type noDisks struct{}

// Disks implements [block.Lister].
func (noDisks) Disks(context.Context) ([]block.Device, error) { return nil, nil }

func run(ctx context.Context, m *boot.Machine) error {
	<-m.Settled
	var cache node.Cache
	cache.SetSkipBMCDetect(true)
	source := inventory.New(inventory.Options{
		Disks:  noDisks{},
		Config: config.NewLive(&config.Config{Params: m.Params}), Node: &cache, Log: m.Log,
	})
	ours, err := source.Collect(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"inventory": ours})
	if err != nil {
		return err
	}
	say("ours.json", text)
	for name, path := range map[string]string{
		"cpuinfo.txt": "/proc/cpuinfo", "meminfo.txt": "/proc/meminfo", "modules.txt": "/proc/modules",
	} {
		if text, err = os.ReadFile(path); err != nil {
			return err
		}
		say(name, text)
	}
	if text, err = lscpu(ctx); err != nil {
		return err
	}
	say("lscpu.json", text)
	return nil
}

func say(name string, data []byte) {
	fmt.Printf("FACT %s %s\n", name, base64.StdEncoding.EncodeToString(data))
}

// lscpu runs Debian's program with Debian's libraries.
func lscpu(ctx context.Context) ([]byte, error) {
	const debian = "/debian"
	for _, dir := range []string{"/sys", "/proc"} {
		if err := os.MkdirAll(debian+dir, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount(dir, debian+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return nil, fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/lscpu", "--json")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: debian}
	cmd.Env, cmd.Dir, cmd.Stderr = []string{"LC_ALL=C"}, "/", os.Stderr
	return cmd.Output()
}
