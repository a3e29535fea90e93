// Package e2e boots the built ramdisk, kernel and initramfs of build/, in QEMU machines with the embedded conductor,
// and tests what requires a machine: disks that the host reads back, resets, firmware that boots the deployed system,
// a network that fails. It contains tests only. Booting is expensive, so each machine serves many tests.
//
// Each machine has a network namespace of its own, so the tests run in parallel.
package e2e
