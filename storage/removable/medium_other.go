//go:build !linux

package removable

import "golang.org/x/sys/unix"

const errNoMedium = unix.ENXIO
