package lldp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/mdlayher/ethtool"
	"golang.org/x/sys/unix"

	"ironroot/storage/block"
)

// Firmware switches off the LLDP agents that run inside some network cards of Intel and take every frame before the
// host sees it.
//
// Cards of the X710 family (driver i40e) are told so through the driver's debugfs file, and where that is not to be had,
// as under the lockdown that comes with Secure Boot, by the private flag disable-fw-lldp. Cards of the E810 family
// (driver ice) have the private flag fw-lldp-agent, which the card remembers over reboots. The flags are described in the
// kernel's Documentation/networking/device_drivers/ethernet/intel, i40e.rst and ice.rst.
type Firmware struct {
	System block.System
	Log    *slog.Logger // nil discards

	mount   func(dir string) error                    // nil mounts debugfs there
	setFlag func(link, flag string, value bool) error // nil asks the kernel's ethtool
}

// Stop switches off the agent of the card behind a link. A link whose card is not known to have one is left alone. It
// needs CAP_NET_ADMIN, and CAP_SYS_ADMIN where debugfs is not mounted yet.
func (f Firmware) Stop(link string) error {
	target, err := os.Readlink(f.System.Sys("class/net", link, "device/driver"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // a link without hardware
	}
	if err != nil {
		return fmt.Errorf("driver of %s: %w", link, err)
	}
	driver := filepath.Base(target)
	switch driver {
	case "i40e":
		if err = f.stopI40e(link); err != nil {
			if second := f.set(link, "disable-fw-lldp", true); second != nil {
				err = errors.Join(err, second)
			} else {
				err = nil
			}
		}
	case "ice":
		err = f.set(link, "fw-lldp-agent", false)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop the LLDP agent in the firmware of %s (driver %s): %w", link, driver, err)
	}
	if f.Log != nil {
		f.Log.Info("the card's own LLDP agent is off", "interface", link, "driver", driver)
	}
	return nil
}

func (f Firmware) stopI40e(link string) error {
	device, err := os.Readlink(f.System.Sys("class/net", link, "device"))
	if err != nil {
		return err
	}
	command := f.System.Sys("kernel/debug/i40e", filepath.Base(device), "command")
	if _, err := os.Stat(command); errors.Is(err, os.ErrNotExist) {
		if err := f.mountDebug(f.System.Sys("kernel/debug")); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(command, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("lldp stop")
	return errors.Join(err, file.Close())
}

// mountDebug mounts debugfs unless it is. It stays mounted, and may be mounted by two links at once, which does no harm.
func (f Firmware) mountDebug(dir string) error {
	if f.mount != nil {
		return f.mount(dir)
	}
	var there unix.Statfs_t
	if err := unix.Statfs(dir, &there); err == nil && there.Type == unix.DEBUGFS_MAGIC {
		return nil
	}
	if err := unix.Mount("debugfs", dir, "debugfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount debugfs on %s: %w", dir, err)
	}
	return nil
}

func (f Firmware) set(link, flag string, value bool) error {
	if f.setFlag != nil {
		return f.setFlag(link, flag, value)
	}
	client, err := ethtool.New()
	if err != nil {
		return fmt.Errorf("ethtool: %w", err)
	}
	defer client.Close() //nolint:errcheck // nothing is written by it
	err = client.SetPrivateFlags(ethtool.PrivateFlags{
		Interface: ethtool.Interface{Name: link},
		Flags:     map[string]bool{flag: value},
	})
	if err != nil {
		return fmt.Errorf("private flag %s: %w", flag, err)
	}
	return nil
}
