// Package bootloader tests that firmware boots what was deployed, from disks and mirrors.
package bootloader
