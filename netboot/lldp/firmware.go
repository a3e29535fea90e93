package lldp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/mdlayher/ethtool"
)

// Private flags of drivers, as described in i40e.rst and ice.rst in the kernel's
// Documentation/networking/device_drivers/ethernet/intel.
const (
	i40eFlag = "disable-fw-lldp" // true disables the agent until a power cycle
	iceFlag  = "fw-lldp-agent"   // false disables the agent, also over power cycles
)

// Firmware disables the LLDP agents in the firmware of some Intel network cards, which otherwise consume all LLDP
// frames, and enables them again. It is safe for concurrent use.
//
// Cards of the X710 family (driver i40e) and of the E810 family (driver ice) have a private flag for the agent. If an
// X710 rejects the flag, the agent is disabled through the driver's debugfs file, which kernel lockdown (Secure Boot)
// forbids.
type Firmware struct {
	Sys string       // where sysfs is mounted; "" is /sys
	Log *slog.Logger // may be nil

	kernel kernel // nil means the machine's

	mu    sync.Mutex
	off   []agentOff // agents that Stop disabled
	early bool       // RestorePersistent was called: Stop ignores cards that keep the setting
	ended bool       // Restore was called: Stop does nothing
}

// kernel gets and sets private flags of a link's driver, and mounts debugfs.
type kernel interface {
	get(link string) (map[string]bool, error)
	set(link, flag string, value bool) error
	mountDebug(dir string) error
}

// agentOff is an agent that was disabled.
type agentOff struct {
	link, driver string
	flag         string // private flag that was changed; "" if the command file was used
	command      string // path of the command file in debugfs
}

// isPersistent reports whether the card keeps the setting over a power cycle.
func (a agentOff) isPersistent() bool { return a.flag == iceFlag }

// start enables the agent again. The flag of ice enables it, and the flag of i40e disables it.
func (f *Firmware) start(a agentOff) error {
	if a.flag == "" {
		return write(a.command, "lldp start")
	}
	return f.set(a.link, a.flag, a.flag == iceFlag)
}

// path returns the path of a file in sysfs.
func (f *Firmware) path(elem ...string) string {
	return filepath.Join(cmp.Or(f.Sys, "/sys"), filepath.Join(elem...))
}

// Stop disables the agent of a link's card. It does nothing if the card has no known agent or if the agent is
// disabled. It needs CAP_NET_ADMIN, and CAP_SYS_ADMIN if debugfs is not mounted yet.
func (f *Firmware) Stop(link string) error {
	target, err := os.Readlink(f.path("class/net", link, "device/driver"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // a link without hardware
	}
	if err != nil {
		return fmt.Errorf("driver of %s: %w", link, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	off, changed := agentOff{link: link, driver: filepath.Base(target)}, false
	driver := off.driver
	switch {
	case f.ended:
	case driver == "i40e":
		off.flag = i40eFlag
		if changed, err = f.change(link, i40eFlag, true); err != nil {
			var second error
			if off.command, second = f.stopByDebugfs(link); second == nil {
				off.flag, changed, err = "", true, nil
			} else {
				err = errors.Join(err, second)
			}
		}
	case driver == "ice" && !f.early:
		off.flag = iceFlag
		changed, err = f.change(link, iceFlag, false)
	}
	if err != nil {
		return fmt.Errorf("stop the LLDP agent in the firmware of %s (driver %s): %w", link, driver, err)
	}
	if changed {
		f.off = append(f.off, off)
		f.logger().Info("LLDP agent of the card disabled", "interface", link, "driver", driver)
	}
	return nil
}

// Restore enables all agents that Stop has disabled. Links of X710 cards lose their carrier briefly. Later calls of
// Stop do nothing.
func (f *Firmware) Restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	return f.restore(func(agentOff) bool { return true })
}

// RestorePersistent enables the agents that would stay disabled over a power cycle. It does not interrupt links. Later
// calls of Stop ignore such cards.
func (f *Firmware) RestorePersistent() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.early = true
	return f.restore(func(a agentOff) bool { return a.isPersistent() })
}

// restore enables the selected agents; mu is held. The next call retries those that failed.
func (f *Firmware) restore(selected func(agentOff) bool) error {
	var failed []error
	var left []agentOff
	for _, a := range f.off {
		if !selected(a) {
			left = append(left, a)
			continue
		}
		if err := f.start(a); err != nil {
			left = append(left, a)
			failed = append(failed, fmt.Errorf("start the LLDP agent in the firmware of %s (driver %s): %w",
				a.link, a.driver, err))
			continue
		}
		f.logger().Info("LLDP agent of the card enabled again", "interface", a.link, "driver", a.driver)
	}
	f.off = left
	return errors.Join(failed...)
}

func (f *Firmware) logger() *slog.Logger {
	if f.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return f.Log
}

// change sets a private flag. It reports whether the flag had the other value.
func (f *Firmware) change(link, flag string, value bool) (changed bool, err error) {
	all, err := f.system().get(link)
	if err != nil {
		return false, fmt.Errorf("read private flag %s: %w", flag, err)
	}
	was, known := all[flag]
	if !known {
		return false, fmt.Errorf("driver has no private flag %s", flag)
	}
	if was == value {
		return false, nil
	}
	return true, f.set(link, flag, value)
}

func (f *Firmware) set(link, flag string, value bool) error {
	if err := f.system().set(link, flag, value); err != nil {
		return fmt.Errorf("set private flag %s to %v: %w", flag, value, err)
	}
	return nil
}

func (f *Firmware) system() kernel {
	if f.kernel == nil {
		return machine{}
	}
	return f.kernel
}

// stopByDebugfs disables the agent of an X710 by the debugfs command file of its driver, and returns its path.
func (f *Firmware) stopByDebugfs(link string) (command string, err error) {
	device, err := os.Readlink(f.path("class/net", link, "device"))
	if err != nil {
		return "", err
	}
	command = f.path("kernel/debug/i40e", filepath.Base(device), "command")
	if _, err := os.Stat(command); errors.Is(err, os.ErrNotExist) {
		if err := f.system().mountDebug(f.path("kernel/debug")); err != nil {
			return "", err
		}
	}
	return command, write(command, "lldp stop")
}

func write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// machine accesses the kernel of this machine, and the private flags by ethtool over netlink.
type machine struct{}

// mountDebug mounts debugfs unless it is mounted. It stays mounted. If two links mount it at the same time, that does
// no harm.
func (machine) mountDebug(dir string) error {
	if err := mountDebugFS(dir); err != nil {
		return fmt.Errorf("mount debugfs on %s: %w", dir, err)
	}
	return nil
}

func (machine) get(link string) (map[string]bool, error) {
	client, err := ethtool.New()
	if err != nil {
		return nil, fmt.Errorf("ethtool: %w", err)
	}
	defer client.Close() //nolint:errcheck // nothing is written by it
	flags, err := client.PrivateFlags(ethtool.Interface{Name: link})
	if err != nil {
		return nil, err
	}
	return flags.Flags, nil
}

func (machine) set(link, flag string, value bool) error {
	client, err := ethtool.New()
	if err != nil {
		return fmt.Errorf("ethtool: %w", err)
	}
	defer client.Close() //nolint:errcheck // nothing is written by it
	return client.SetPrivateFlags(ethtool.PrivateFlags{
		Interface: ethtool.Interface{Name: link},
		Flags:     map[string]bool{flag: value},
	})
}
