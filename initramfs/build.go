// Package initramfs builds the ramdisk: a kernel, and an initramfs that holds the agent as /init, kernel modules and,
// for people, u-root's shell.
//
// The archive is a row of cpio archives in the "newc" format of the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst, each on its own compressed or not. The same inputs give the same bytes.
package initramfs

import (
	"context"
	"errors"
)

// Build writes NAME.kernel, NAME.initramfs, a .sha256 file for each, and NAME.tar.gz with its .sha256 into the folder
// o.Out.
func Build(ctx context.Context, o Options) (Report, error) {
	return Report{}, errors.New("initramfs: not written yet")
}
