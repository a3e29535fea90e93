//go:build !linux

package growfs

// drivers is empty: only Linux has these file systems.
var drivers []driver
