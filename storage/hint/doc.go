// Package hint selects disks by root device hints: the expressions of properties.root_device, with the operators of
// OpenStack's extra_specs (oslo.utils, specs_matcher).
//
// A disk must match all hints. Both sides of a comparison are lower-cased, trimmed and percent-encoded, so that a
// value with spaces is one word. Without an operator the values must be equal. A size without an operator matches only
// disks of a whole number of GiB. A text that the disk does not have is compared as "none"; a missing serial number or
// world wide name matches nothing.
//
// # by_path has no names that udev does not make
//
// A root device hint by path is copied from a running system. There, eMMC on a PCI controller and namespaces of NVMe
// over fabrics have no such name, because it would change: the kernel numbers slots and controllers in the order in
// which it finds them. Xen's xen-vbd-N is an exception: some distributions add it by a rule of their own, and it is
// unique.
package hint
