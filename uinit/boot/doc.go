// Package boot turns a freshly started kernel into a place where the agent can run, and keeps it that way: it is what
// PID 1 does in the ramdisk.
//
// Main mounts the kernel's file systems, opens every console named on the kernel command line, checks that the
// archive was unpacked to its end, loads the modules this machine has devices for, reaps orphans, and runs one
// function, the agent, for ever. It never returns: when PID 1 exits the kernel panics.
package boot
