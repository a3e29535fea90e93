//go:build !linux

package growfs

// drivers is empty: growing needs the drivers of Linux.
var drivers []driver
