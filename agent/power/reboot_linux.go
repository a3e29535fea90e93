package power

import "golang.org/x/sys/unix"

// Commands of reboot(2).
const (
	commandRestart  = unix.LINUX_REBOOT_CMD_RESTART
	commandPowerOff = unix.LINUX_REBOOT_CMD_POWER_OFF
)

func reboot(command int) error { return unix.Reboot(command) }

func remountReadOnly(target string) error {
	return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
}
