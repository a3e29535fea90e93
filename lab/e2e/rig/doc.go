// Package rig provides what the tests of lab/e2e share: machines with the built ramdisk, the conductor and an image
// server around them, disks and media, and what tests ask of a machine.
//
// Each machine has a network namespace of its own, so tests run in parallel.
package rig
