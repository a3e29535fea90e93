//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/attack"
)

// checkRoot is require_root of cli.rs.
func checkRoot() error {
	if os.Getuid() != 0 {
		return errors.New("not root")
	}
	if err := unix.Prctl(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
		return fmt.Errorf("CAP_SYS_ADMIN: %w", err)
	}
	return nil
}

// checkNamespaces is join_host_ipc_namespace of cli.rs, and what setns of run_in_host_mountns needs (install.rs).
func checkNamespaces() error {
	one, err := os.Readlink("/proc/1/ns/ipc")
	if err != nil {
		return err
	}
	own, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil {
		return err
	}
	if own != one {
		return fmt.Errorf("IPC namespace: got %s, want %s", own, one)
	}
	// udevadm settle must succeed in the mount namespace of process 1.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine
		done <- func() error {
			namespace, err := os.Open("/proc/1/ns/mnt")
			if err != nil {
				return err
			}
			defer namespace.Close() //nolint:errcheck // only read
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("setns: %w", err)
			}
			if err := os.Chdir("/"); err != nil {
				return err
			}
			return exec.CommandContext(context.Background(), "/usr/bin/udevadm", "settle").Run()
		}()
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("udevadm in the mount namespace of process 1: %w", err)
	}
	return nil
}

// checkDirectories is ensure_mirrored_host_mount of mount.rs.
func checkDirectories() error {
	for _, dir := range []string{"/dev", "/var/lib/containers", "/var/tmp", "/run/udev"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		var here, there unix.Statfs_t
		if err := errors.Join(unix.Statfs(dir, &here), unix.Statfs("/proc/1/root"+dir, &there)); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if here.Fsid != there.Fsid {
			return fmt.Errorf("%s is another file system than that of process 1", dir)
		}
	}
	if err := os.MkdirAll("/etc/containers", 0o755); err != nil {
		return err
	}
	return os.WriteFile("/etc/containers/policy.json", []byte("{}"), 0o600)
}

// checkEngine repeats the requirements of containerenv.rs and install.rs on podman's description of the container.
func checkEngine() error {
	const name = "/run/.containerenv"
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found {
			return fmt.Errorf("%s: got line %q, want NAME=VALUE", name, line)
		}
		fields[key] = strings.Trim(value, `"`)
	}
	id, err := hex.DecodeString(fields["imageid"])
	if !strings.HasPrefix(fields["engine"], "podman") || err != nil || len(id) != sha256.Size ||
		fields["image"] == "" || fields["rootless"] == "1" {
		return fmt.Errorf("%s: got %q, want the engine podman, an image with its ID, and not rootless", name, fields)
	}
	return nil
}

// checkVariables is setup_sys_mount of install.rs. bootupd writes a boot entry if the machine was booted by UEFI, so
// that there must be variables, of which one can be created.
func checkVariables() error {
	if _, err := os.Stat("/sys/firmware/efi"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	const dir = "/sys/firmware/efi/efivars"
	names, err := filepath.Glob(dir + "/Boot[0-9A-F]*-8be4df61-93ca-11d2-aa0d-00e098032b8c")
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: got no boot entries, want some", dir)
	}
	// One that can be removed: the kernel makes others immutable. Attributes: non-volatile, in boot services and at
	// run time (UEFI 2.10, 8.2). Value: entry FFFE.
	const name = dir + "/BootNext-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	value := []byte{7, 0, 0, 0, 0xfe, 0xff}
	if err := os.WriteFile(name, value, 0o644); err != nil {
		return err
	}
	got, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, value) {
		return fmt.Errorf("%s: got % x, want % x", name, got, value)
	}
	fmt.Println("UEFI variable written")
	return os.Remove(name)
}

// checkTemporary is setup_tmp_mount of install.rs.
func checkTemporary() error {
	var s unix.Statfs_t
	if err := unix.Statfs("/tmp", &s); err != nil {
		return err
	}
	if s.Type == unix.TMPFS_MAGIC {
		return nil
	}
	return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "")
}

// checkSELinux is selinux_enabled of lsm.rs: with a policy, the labels would be missing.
func checkSELinux() error {
	const policy = "/proc/1/root/sys/fs/selinux/enforce"
	_, err := os.Stat(policy)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("got %s, want no SELinux", policy)
}

// checkProcesses fails if the container sees processes of the ramdisk.
func checkProcesses() error {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	const most = 4 // process 1, this one, and what they may have started
	if len(names) > most {
		return fmt.Errorf("the container sees %d processes, want at most %d", len(names), most)
	}
	return nil
}

// checkConfinement tries to escape from the container.
func checkConfinement(privileged bool) error {
	report, err := attack.Run()
	if err != nil {
		return err
	}
	fmt.Printf("%d attacks, %d succeeded\n", report.Tried, len(report.Reached))
	return report.Check(attack.PermittedInContainer(privileged))
}
