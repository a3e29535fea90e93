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
// What goes wrong is said on all consoles. A panic in a goroutine that this package started writes its stack there,
// syncs, and restarts the machine after a while. Panics elsewhere are the Go runtime's: it writes the stack to standard
// error, from where a process of its own, the witness, brings it to all consoles, and exits; the kernel then restarts the
// machine, after the same while, without sync. No console that stands still is waited for.
// No success is reported of anything that such an end could undo: whoever writes to a disk flushes it first.
//
// Kernel parameters that count here: console=, panic=, quiet and loglevel= as the kernel has them; modprobe.blacklist=
// and MODULE.PARAMETER= as modprobe has them; ironroot.shell=1, a shell on the first console, or ironroot.shell=ttyS1 on
// that one. The kernel starts this program as /sbin/modprobe, too: see package kmod.
package boot
