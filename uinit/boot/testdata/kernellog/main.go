// Command kernellog is a ramdisk whose operator has cleared the kernel's log before a rescue. It reports where
// secrets of the kernel command line, which begin with "planted-", and a line that was written later, are in that log.
package main

import (
	"bytes"
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/uinit/boot"
)

// Actions of syslog(2).
const (
	actionReadAll = 3
	actionClear   = 5
)

func main() {
	boot.Main(func(ctx context.Context, m *boot.Machine) error {
		<-m.Settled
		if err := os.MkdirAll("/bin", 0o755); err != nil {
			return err
		}
		if err := os.WriteFile("/bin/sh", nil, 0o755); err != nil { // a rescue needs a shell
			return err
		}
		report(m, "booted")
		if _, err := unix.Klogctl(actionClear, nil); err != nil {
			return err
		}
		if err := os.WriteFile("/dev/kmsg", []byte("<6>a later line\n"), 0); err != nil {
			return err
		}
		report(m, "cleared")
		if err := m.PrepareRescue(ctx); err != nil {
			return err
		}
		report(m, "hidden")
		return nil
	})
}

// report logs what both interfaces of the kernel's log contain.
func report(m *boot.Machine, when string) {
	shown := make([]byte, 1<<20)
	n, err := unix.Klogctl(actionReadAll, shown)
	all, readErr := records()
	secret, later := []byte("planted-"), []byte("a later line")
	m.Log.Info(when, "secret_in_syslog", bytes.Contains(shown[:max(n, 0)], secret),
		"secret_in_kmsg", bytes.Contains(all, secret), "line_in_syslog", bytes.Contains(shown[:max(n, 0)], later),
		"line_in_kmsg", bytes.Contains(all, later), "err", errors.Join(err, readErr))
}

// records returns all records of /dev/kmsg.
func records() ([]byte, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	var all []byte
	record := make([]byte, 8<<10)
	for {
		n, err := unix.Read(fd, record)
		switch err {
		case nil:
			all = append(all, record[:n]...)
		case unix.EPIPE:
		case unix.EAGAIN:
			return all, nil
		default:
			return nil, err
		}
	}
}
