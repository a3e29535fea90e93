package lldp

import "golang.org/x/sys/unix"

// flagCarrier is the flag of links that have a carrier.
const flagCarrier = unix.IFF_LOWER_UP

// mountDebugFS mounts debugfs on a directory unless it is mounted there.
func mountDebugFS(dir string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err == nil && stat.Type == unix.DEBUGFS_MAGIC {
		return nil
	}
	return unix.Mount("debugfs", dir, "debugfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
}
