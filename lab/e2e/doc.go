// Package e2e boots the ramdisk as it is built, kernel and initramfs of build/, in QEMU machines under the embedded
// conductor, and proves what needs a machine: disks that are read back on the host, resets, firmware that boots what was
// deployed, a network that goes silent. It holds tests only. Booting is the dear part, so each machine serves many tests.
package e2e
