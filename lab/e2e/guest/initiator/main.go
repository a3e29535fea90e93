//go:build linux

// Command initiator is the /init of a machine with Debian's open-iscsi: the conductor's side of a deployment over
// iSCSI. It mounts Debian from the disk with the serial number DEBIAN, takes the address 10.0.2.15 of QEMU's own
// network, and runs shell scripts in a chroot: the body of each request to port 8000. The reply has their output, and
// status 500 if they fail.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot"
)

const (
	debian = "/mnt"
	name   = "InitiatorName=iqn.1993-08.org.debian:01:conductor\n"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		err := run(ctx, m)
		fmt.Printf("FAILED %v\n", err)
		return err
	})
}

func run(ctx context.Context, m *boot.Machine) error {
	if err := connect(); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := mount(ctx, m); err != nil {
		return err
	}
	if err := m.Probe(ctx, "iscsi_tcp"); err != nil {
		return err
	}
	daemon := shell(ctx, "exec iscsid -f")
	daemon.Stdout, daemon.Stderr = os.Stdout, os.Stdout
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("iscsid: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":8000")
	if err != nil {
		return err
	}
	fmt.Println("INITIATOR READY")
	server := &http.Server{Handler: http.HandlerFunc(serve), ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

// serve runs the script in the body of a request.
func serve(w http.ResponseWriter, r *http.Request) {
	script, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := shell(r.Context(), string(script)).CombinedOutput()
	fmt.Printf("script %q: %v: %s\n", script, err, out)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "%v: ", err)
	}
	_, _ = w.Write(out)
}

// shell returns a command that runs a script in the chroot.
func shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: debian}
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, "/"
	return cmd
}

// connect takes the address that QEMU's own network has for its guest.
func connect() error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr("10.0.2.15/24")
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link)); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(10, 0, 2, 2)})
}

// mount mounts Debian read-only, with directories in memory for what open-iscsi writes.
func mount(ctx context.Context, m *boot.Machine) error {
	wait, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	disk := ""
	_, err := block.WaitDisks(wait, sysfs.Root{}, func(list []block.Device) bool {
		for _, d := range list {
			if d.Serial == "DEBIAN" {
				disk = d.Path
			}
		}
		return disk != ""
	})
	if err != nil {
		return fmt.Errorf("disk DEBIAN: %w", err)
	}
	if err := m.Probe(ctx, "ext4"); err != nil {
		return err
	}
	if err := unix.Mount(disk, debian, "ext4", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount %s: %w", disk, err)
	}
	for _, dir := range []string{"/dev", "/sys", "/proc"} {
		if err := unix.Mount(dir, debian+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	config, err := os.ReadFile(debian + "/etc/iscsi/iscsid.conf")
	if err != nil {
		return err
	}
	for _, dir := range []string{"/run", "/tmp", "/etc/iscsi"} {
		if err := unix.Mount("tmpfs", debian+dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	for _, dir := range []string{"/run/lock", "/run/lock/iscsi"} {
		if err := os.Mkdir(debian+dir, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(debian+"/etc/iscsi/iscsid.conf", config, 0o600),
		os.WriteFile(debian+"/etc/iscsi/initiatorname.iscsi", []byte(name), 0o600),
	)
}
