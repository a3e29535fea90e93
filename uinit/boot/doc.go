// Package boot turns a freshly started kernel into a place where the agent can run, and keeps it that way: it is what
// PID 1 does in the ramdisk.
//
// Main mounts the kernel's file systems, opens every console named on the kernel command line, checks that the archive
// was unpacked to its end, and then does three things concurrently: it loads the modules this machine has devices for,
// it runs one function, the agent, again and again, and it reaps orphans. It never returns: when PID 1 exits, the
// kernel panics.
//
// Serial consoles get plain lines and never a control sequence. Virtual terminals, the machine's own screen, show a
// picture of the agent's state instead, drawn anew when it changes; when something has to be read, such as the stack of a
// panic, they show lines again.
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
