//go:build linux

package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/u-root/u-root/pkg/libinit"
	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// procEntries lists the parts of the root file system that show the kernel's command line.
func procEntries() []libinit.Creator {
	return []libinit.Creator{
		libinit.Dir{Name: "/proc", Mode: 0o555},
		libinit.Mount{Source: "proc", Target: "/proc", FSType: "proc", Flags: confine.DataOnly},
	}
}

// rootEntries lists the parts of the root file system, in order. Unlike u-root's list it has no cgroups and no
// directories for compilers. efivarfs needs a module: see mountLate.
func rootEntries() []libinit.Creator {
	return append(procEntries(), []libinit.Creator{
		libinit.Dir{Name: "/sys", Mode: 0o555},
		libinit.Mount{Source: "sysfs", Target: "/sys", FSType: "sysfs", Flags: confine.DataOnly},
		libinit.Dir{Name: "/dev", Mode: 0o755},
		libinit.Mount{Source: "devtmpfs", Target: "/dev", FSType: "devtmpfs", Flags: unix.MS_NOSUID, Opts: "mode=0755"},
		libinit.Dir{Name: "/dev/pts", Mode: 0o755},
		libinit.Mount{
			Source: "devpts", Target: "/dev/pts", FSType: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC,
			Opts: "ptmxmode=0666,mode=0620,gid=5",
		},
		libinit.Symlink{Target: "pts/ptmx", NewPath: "/dev/ptmx"},
		libinit.Symlink{Target: "/proc/self/fd", NewPath: "/dev/fd"},
		libinit.Dir{Name: "/dev/shm", Mode: 0o1777},
		libinit.Mount{
			Source: "tmpfs", Target: "/dev/shm", FSType: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NODEV,
			Opts: "mode=1777",
		},
		libinit.Dir{Name: "/run", Mode: 0o755},
		libinit.Mount{
			Source: "tmpfs", Target: "/run", FSType: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NODEV, Opts: "mode=0755",
		},
		libinit.Dir{Name: "/tmp", Mode: 0o1777},
		libinit.Mount{
			Source: "tmpfs", Target: "/tmp", FSType: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NODEV, Opts: "mode=1777",
		},
		// The archive does not contain this link: the kernel requests modules before this program is process 1, and
		// each request would start it and wait for it. No request can be served without /proc.
		libinit.Symlink{Target: "/init", NewPath: "/sbin/modprobe"},
	}...)
}

// mountAll sets up the root file system and returns the errors. The machine continues with the parts that succeeded.
func mountAll() []error {
	var failed []error
	unix.Umask(0)
	for _, c := range rootEntries() {
		// The kernel can have mounted devtmpfs already.
		if err := c.Create(); err != nil && !errors.Is(err, unix.EBUSY) {
			failed = append(failed, fmt.Errorf("%s: %w", c, err))
		}
	}
	unix.Umask(0o022)
	return failed
}

// mountLate mounts the file systems that some machines lack, or that need a module, which the kernel requests itself.
func mountLate(log *slog.Logger) {
	for _, m := range []libinit.Mount{
		{Source: "efivarfs", Target: "/sys/firmware/efi/efivars", FSType: "efivarfs"},
		{Source: "pstore", Target: "/sys/fs/pstore", FSType: "pstore"},
		{Source: "configfs", Target: "/sys/kernel/config", FSType: "configfs"},
	} {
		if _, err := os.Stat(m.Target); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		m.Flags = confine.DataOnly
		if err := m.Create(); err != nil && !errors.Is(err, unix.EBUSY) {
			log.Warn("not mounted", "file_system", m.FSType, "err", err)
		}
	}
}

// loopbackUp sets the loopback interface up.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // a socket without data
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}
