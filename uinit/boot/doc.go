//go:build linux

// Package boot implements PID 1 of the ramdisk: it prepares the machine after the kernel has started, and runs the
// agent.
//
// Main mounts the kernel's file systems, opens every console that the kernel command line names, and checks that the
// initramfs was unpacked completely. Then it loads the modules of the machine's devices, runs the agent, again after
// each error, and reaps orphans, all concurrently. It never returns, because the kernel panics when PID 1 exits.
//
// Serial consoles get plain lines without control sequences. Virtual terminals, the machine's own screen, show the
// state of the agent instead, redrawn at each change. They show lines again for text that must be read, such as the
// stack of a panic.
//
// All consoles show errors. After a panic in a goroutine of this package, the stack is written to all consoles, file
// systems are synced, and the machine restarts after a delay. A panic elsewhere ends the process: the Go runtime
// writes the stack to standard error, from which a second process, the crash reporter, copies it to all consoles. The
// kernel then restarts the machine after the same delay, without sync. A console that does not accept data is not
// waited for. Because of that missing sync, a write to a disk is flushed before its success is reported.
//
// These kernel parameters have an effect: console=, panic=, quiet and loglevel= as in the kernel; modprobe.blacklist=
// and MODULE.PARAMETER= as in modprobe; ironroot.shell=1 for a shell on the first console, and ironroot.shell=ttyS1
// for one on that console; ironroot.network_disks=1 for disks of a network in a signed image (see
// [config.Params.AllowsNetworkDisks]). The kernel also starts this program as /sbin/modprobe: see package kmod.
package boot
