package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sandboxArgument makes this program process 1 of new namespaces, which runs a test binary.
const sandboxArgument = "run-in-sandbox"

// sandboxed returns a command that runs a program in namespaces of its own. When its first process is killed, the
// kernel kills all others in them.
func sandboxed(program string, arguments ...string) *exec.Cmd {
	arguments = append([]string{sandboxArgument, program}, arguments...)
	cmd := exec.Command("/proc/self/exe", arguments...) //nolint:noctx // run kills it
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
	}
	return cmd
}

// sandbox is process 1 of the namespaces: it takes away what mutants must not reach, runs the program and exits with
// its status.
func sandbox(command []string) error {
	if err := errors.Join(hideDevices(), loopbackUp(), dropCapabilities()); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // ends with this process
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		os.Exit(max(exited.ExitCode(), 1))
	}
	return err
}

// hideDevices mounts /dev/null over the disks that are no loop devices and over other devices of the machine, and hides
// the switches of the kernel and the firmware's variables.
func hideDevices() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for _, system := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}} { // those of the namespaces
		if err := unix.Mount(system.kind, system.dir, system.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", system.dir, err)
		}
	}
	nodes, err := filepath.Glob("/dev/*")
	if err != nil {
		return err
	}
	for _, node := range nodes {
		var stat unix.Stat_t
		if err := unix.Stat(node, &stat); err != nil {
			continue // a link to nothing
		}
		name := filepath.Base(node)
		disk := stat.Mode&unix.S_IFMT == unix.S_IFBLK && !strings.HasPrefix(name, "loop")
		if disk || strings.HasPrefix(name, "rtc") || strings.HasPrefix(name, "nvme") || strings.HasPrefix(name, "watchdog") ||
			strings.HasPrefix(name, "ipmi") || name == "mem" || name == "kmsg" {
			if err := unix.Mount("/dev/null", node, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("hide %s: %w", node, err)
			}
		}
	}
	for _, dir := range []string{"/sys/firmware/efi", "/dev/mapper", "/dev/disk"} {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	err = unix.Mount("/dev/null", "/proc/sysrq-trigger", "", unix.MS_BIND, "")
	if err != nil && !errors.Is(err, unix.ENOENT) { // not every kernel has it
		return fmt.Errorf("hide /proc/sysrq-trigger: %w", err)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// dropCapabilities takes the capabilities to stop the machine, to set its clock and to load modules from all programs
// that this process starts. Nothing that it needs itself depends on them.
func dropCapabilities() error {
	for _, capability := range []uintptr{unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	return nil
}
