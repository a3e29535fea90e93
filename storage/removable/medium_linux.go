package removable

import "golang.org/x/sys/unix"

// errNoMedium is the error of a drive without a medium.
const errNoMedium = unix.ENOMEDIUM
