// Package e2e contains the tests that boot the built ramdisk, kernel and initramfs of build/, in QEMU machines with the
// embedded conductor: disks that the host reads back, resets, firmware that boots the deployed system, a network that
// fails. Each directory has the tests of one subject, rig has the machines, and the others are programs for guests.
// Booting is expensive, so each machine serves many tests.
package e2e
