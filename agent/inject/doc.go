// Package inject implements the step inject_files: it writes files of the operator to file systems of a node.
//
// # Injected files stay inside their file system
//
// The step writes to the file system of an image, whose content belongs to the tenant. ironic-python-agent
// joins names with the directory where it is mounted, so a link or ".." leads to the ramdisk. Here names are resolved
// as inside a chroot, by a mount that no other process sees.
//
// The whole list is validated before the first file is written, with all fields of URLs. ironic-python-agent finds a
// missing content, a field that the node lacks, or text that is not base64 only when it is that file's turn. It logs a
// file that cannot be removed; here that is an error. Fields can be texts and numbers only: no attributes, conversions
// and format specifications. null is not replaced. A device must be a disk of the machine or a partition of one, and
// not protected by skip_block_devices. Links below /dev/disk are resolved without udev. A link that matches several
// devices is an error, because udev can link to any of them. The size of a file is limited by its file system, and the
// time by the same limits as for images. Existing files keep their owner and mode unless others are given. The mode is
// set after the owner, because the kernel clears set-user-id bits when the owner changes.
package inject
