//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"ironroot/uinit/boot"
)

const debian = "/mnt"

// questions are the commands of the tools and the names of their result files. A command may fail, because no machine
// has every device.
var questions = []struct{ name, command string }{
	{"lsblk.json", "lsblk --json --bytes --output-all --all"},
	{"lscpu.json", "lscpu --json"},
	{"lscpu-e.json", "lscpu --json --extended=CPU,NODE,SOCKET,CORE --all"},
	{"lshw.json", "lshw -quiet -json"},
	{"lspci.txt", "lspci -D -n -vmm"},
	{"lsusb.txt", "lsusb"},
	{"ip.json", "ip -json -details address"},
	{"ethtool.txt", `for i in /sys/class/net/*; do i=${i##*/}; echo "== $i"; ethtool "$i" 2>/dev/null; ` +
		`ethtool -i "$i" 2>/dev/null; ethtool -P "$i" 2>/dev/null; done`},
	{"by-path.txt", `find /dev/disk/by-path -type l -printf '%p %l\n'`},
	{"udev.txt", "udevadm info --export-db"},
	{"dmidecode.txt", "dmidecode"},
	{"dmidecode.bin", "dmidecode --dump-bin /tmp/dmi >/dev/null; cat /tmp/dmi"},
	{"meminfo.txt", "cat /proc/meminfo; for n in /sys/devices/system/node/node*; do echo $n; cat $n/meminfo; done"},
	{"hostname.txt", "uname -n"},
	{"machine.txt", "uname -m"},
	{"ipmi.txt", `for c in 1 2 3 4 5 6 7 8 9 10 11; do echo "== $c"; ipmitool lan print $c 2>&1; ` +
		`ipmitool lan6 print $c 2>&1; done`},
	{"more.txt", "test -x /root/more && /root/more"},
}

// ask mounts Debian, makes its udev process every device, and stores the results of the tools.
func ask(ctx context.Context, m *boot.Machine, disk string, results *archive) error {
	if err := mount(ctx, m, disk); err != nil {
		return err
	}
	const udev = "/lib/systemd/systemd-udevd --daemon && udevadm trigger --action=add && udevadm settle --timeout=900"
	if out, err := sh(ctx, udev); err != nil {
		return fmt.Errorf("udev: %w\n%s", err, out)
	}
	for _, q := range questions {
		answer, err := sh(ctx, q.command)
		if err != nil {
			fmt.Printf("%s: %v\n", q.name, err)
		}
		if err := results.add(q.name, answer); err != nil {
			return err
		}
	}
	return nil
}

func mount(ctx context.Context, m *boot.Machine, disk string) error {
	if err := m.Probe(ctx, "ext4"); err != nil {
		return err
	}
	if err := unix.Mount(disk, debian, "ext4", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount %q: %w", disk, err)
	}
	for _, dir := range []string{"/dev", "/sys", "/proc"} {
		if err := unix.Mount(dir, debian+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	// lshw reads USB devices from debugfs, which every Debian mounts.
	if err := unix.Mount("debugfs", debian+"/sys/kernel/debug", "debugfs", 0, ""); err != nil {
		return fmt.Errorf("mount debugfs: %w", err)
	}
	for _, dir := range []string{"/run", "/tmp"} {
		if err := unix.Mount("tmpfs", debian+dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

// sh runs a command in the chroot and returns its standard output. Standard error is written to the console.
func sh(ctx context.Context, command string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: debian}
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "SYSTEMD_IGNORE_CHROOT=1"}, "/"
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err := cmd.Run()
	return out.Bytes(), err
}
