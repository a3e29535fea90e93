//go:build linux

package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"ironroot/agent/rescue"
	"ironroot/netboot"
	"ironroot/uinit/account"
)

const (
	// askTime is the time for which DHCP servers are asked again and again: Ironic connects the ports to the user's
	// networks after the rescue was confirmed, and a switch that only changes the VLAN of a port interrupts no
	// carrier.
	askTime = 10 * time.Minute
	// askPause is the pause in between.
	askPause = 5 * time.Second
)

// rescuer is the work of the ramdisk in a rescue: networks with DHCP, the disks of the iBFT, and logins of the user.
func (b *boot) rescuer() Func {
	var network *netboot.Network // kept when the work is run again
	return func(ctx context.Context, m *Machine) error {
		root, err := mountUserland(ctx)
		if err == nil && root != "" {
			_, err = findShell(root)
		}
		if err != nil {
			m.Log.Error("userland of the rescue not used", "err", err)
			root = ""
		}
		if network == nil {
			if err := netboot.Reset(); err != nil {
				m.Log.Warn("network of the agent not reset", "err", err)
			}
			started, err := netboot.Start(ctx, netboot.Config{Log: m.Log, ResolvConf: resolvConf(root)})
			if err != nil {
				return err
			}
			network = started
			keep(ctx, func() { followHostname(ctx, started, setHostname, m.Log) })
			keep(ctx, func() { askAgain(ctx, started) })
			attachSAN(ctx, m, started, func() bool { return false })
			loadFileSystems(ctx, m)
		}
		return b.serveRescue(ctx, m, root)
	}
}

// fileSystems are the modules of the file systems of users' disks.
var fileSystems = []string{"ext4", "xfs", "btrfs", "vfat"}

// loadFileSystems loads these modules. The kernel loads them itself if a type is named, but u-root's mount tries only
// types that it finds in /proc/filesystems.
func loadFileSystems(ctx context.Context, m *Machine) {
	for _, name := range fileSystems {
		if err := m.Probe(ctx, name); err != nil {
			m.Log.Warn("file system not available", "module", name, "err", err)
		}
	}
}

// resolvConf returns the path of the resolver's file, which the ramdisk shares with a userland at root.
func resolvConf(root string) string {
	const name = "/etc/resolv.conf"
	if root == "" {
		return name
	}
	shared := root + name
	_ = os.Remove(shared) // a link could lead anywhere; the file is replaced
	_ = os.Remove(name)
	_ = os.Symlink(shared, name) // without it, only the ramdisk's own commands resolve no names
	return shared
}

// serveRescue lets the user log in until ctx ends, into a userland at root, or the ramdisk without one.
func (b *boot) serveRescue(ctx context.Context, m *Machine, root string) error {
	hash, err := rescue.Load("/")
	if err != nil {
		return err
	}
	top := cmp.Or(root, "/")
	shell, err := findShell(top)
	if err != nil {
		return err
	}
	user := account.Rescue(hash, shell, root)
	if err := errors.Join(user.MakeHome(), installSudo(top)); err != nil {
		return err
	}
	accounts := account.List{user}
	if err := b.serveSSH(ctx, accounts); err != nil {
		return err
	}
	if err := b.prompt(ctx, accounts, m.Settled); err != nil {
		m.Log.Error("no login prompts on the consoles", "err", err)
	}
	m.Log.Info("rescue: waiting for logins", "user", account.RescueName)
	<-ctx.Done()
	return nil
}

// checkLogin returns an error if nobody could log in to a rescue: the image below root has neither a shell nor a
// userland with one.
func checkLogin(ctx context.Context, root string) error {
	_, err := findShell(root)
	if err == nil {
		return nil
	}
	if userlandErr := checkUserland(ctx, root); userlandErr != nil {
		return fmt.Errorf("nobody could log in: %w", errors.Join(err, userlandErr))
	}
	return nil
}

// asker is the part of netboot.Network that asks DHCP servers.
type asker interface{ AskAgain() }

// askAgain asks the DHCP servers again for askTime.
func askAgain(ctx context.Context, n asker) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	ticker := time.NewTicker(askPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.AskAgain()
		case <-ctx.Done():
			return
		}
	}
}

// shells are shells for people, the best one first.
var shells = []string{"/bin/bash", shellPath, "/bin/sh"}

// findShell returns the best shell below a root directory.
func findShell(root string) (string, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return "", err
	}
	defer dir.Close() //nolint:errcheck // only a position
	for _, name := range shells {
		if info, err := dir.Stat(name[1:]); err == nil && info.Mode().IsRegular() {
			return name, nil
		}
	}
	return "", fmt.Errorf("no shell in %s: want one of %v", root, shells)
}
