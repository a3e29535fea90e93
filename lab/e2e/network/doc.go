// Package network tests how the ramdisk configures its network and clock, and finds Ironic.
package network
