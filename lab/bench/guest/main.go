//go:build linux

// Command guest is the /init of a machine in which the image writer is compared with curl and dd, and an overwrite with
// dd. The kernel parameters bench-url, bench-algorithm and bench-checksum define an image to write to /dev/vda, or
// bench-overwrite the disks to overwrite; bench-rounds is the number of rounds. /dev/vdb contains a Debian with curl
// and dd. It prints a line "BENCH NAME SECONDS" for each run.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/netboot"
	"ironroot/storage/image"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
	"ironroot/uinit/boot"
)

const (
	target = "/dev/vda"
	debian = "/mnt"
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		if err := run(ctx, m); err != nil {
			fmt.Printf("BENCH-FAILED %v\n", err)
			return err
		}
		fmt.Println("BENCH-DONE")
		return nil
	})
}

func run(ctx context.Context, m *boot.Machine) error {
	rounds, err := strconv.Atoi(m.Params["bench-rounds"])
	if err != nil {
		return fmt.Errorf("bench-rounds: %w", err)
	}
	<-m.Settled
	if err := mountDebian(ctx, m); err != nil {
		return err
	}
	if m.Params["bench-overwrite"] != "" {
		return overwrite(ctx, m, rounds)
	}
	network, err := netboot.Start(ctx, netboot.Config{Log: m.Log})
	if err != nil {
		return err
	}
	if err := network.WaitAddress(ctx); err != nil {
		return err
	}
	url, sum := m.Params["bench-url"], m.Params["bench-checksum"]
	for range rounds {
		for name, work := range map[string]func() error{
			"curl-dd":           func() error { return curlDD(ctx, url, "") },
			"curl-dd-fullblock": func() error { return curlDD(ctx, url, "iflag=fullblock") },
			"curl-sha256sum-dd": func() error { return verifiedDD(ctx, url, sum) },
		} {
			if err := timed(name, work); err != nil {
				return err
			}
		}
		if err := timed("ironroot", func() error { return write(ctx, m) }); err != nil {
			return err
		}
	}
	return nil
}

func timed(name string, work func() error) error {
	start := time.Now()
	if err := work(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("BENCH %s %.3f\n", name, time.Since(start).Seconds())
	return nil
}

func mountDebian(ctx context.Context, m *boot.Machine) error {
	if err := m.Probe(ctx, "ext4"); err != nil {
		return err
	}
	if err := unix.Mount("/dev/vdb", debian, "ext4", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount /dev/vdb: %w", err)
	}
	if err := unix.Mount("/dev", debian+"/dev", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /dev: %w", err)
	}
	return nil
}

// curlDD runs the usual shell command. Without iflag=fullblock, dd writes whatever the pipe returns. All contestants
// flush at the end.
func curlDD(ctx context.Context, url, flags string) error {
	return shell(ctx, `curl -sSf "$0" | dd of=`+target+` bs=4M `+flags+` oflag=direct conv=fsync status=none`, url)
}

// verifiedDD does the work of the image writer: `curl | tee >(sha256sum) | dd iflag=fullblock oflag=direct`, and a
// comparison. The pipe has a name because /dev/fd, which the shell needs for one without, leads to a missing /proc.
func verifiedDD(ctx context.Context, url, sum string) error {
	const pipe = "/dev/bench-pipe"
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return fmt.Errorf("make %s: %w", pipe, err)
	}
	defer os.Remove(pipe) //nolint:errcheck // the next round fails then
	return shell(ctx, `sha256sum <"$1" >"$1.sum" &
		curl -sSf "$0" | tee "$1" | dd of=`+target+` bs=4M iflag=fullblock oflag=direct conv=fsync status=none
		wait
		read got rest <"$1.sum"
		[ "$got" = "$2" ]`, url, pipe, sum)
}

// shell runs a script in the Debian.
func shell(ctx context.Context, script string, args ...string) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-ec", script}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: debian}
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/"
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func write(ctx context.Context, m *boot.Machine) error {
	url, err := fetch.ParseURL(m.Params["bench-url"])
	if err != nil {
		return err
	}
	_, err = image.Write(ctx, target, image.Source{
		URLs: []fetch.URL{url}, Format: "raw",
		Checksum: checksum.Sum{Algorithm: m.Params["bench-algorithm"], Value: m.Params["bench-checksum"]},
		Fetch:    fetch.Options{Client: &http.Client{}, ConnectTimeout: time.Minute},
	}, image.Options{})
	return err
}
