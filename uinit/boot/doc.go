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
// The package has about thirty files, one for each duty of PID 1. The duties share the consoles, the log and the order
// of the start. Duties that do not need these are packages of their own: kmod, login, sshd, worker.
//
// These kernel parameters have an effect: console=, panic=, quiet and loglevel= as in the kernel; modprobe.blacklist=
// and MODULE.PARAMETER= as in modprobe; ironroot.shell=1 for a shell on the first console, and ironroot.shell=ttyS1
// for one on that console; ironroot.network_disks=1 for disks of a network in a signed image (see
// [config.Params.AllowsNetworkDisks]). The kernel also starts this program as /sbin/modprobe: see package kmod.
//
// # FIPS 140-3 mode needs another start of /init
//
// Go selects the mode of its cryptographic module once, when a process starts, from the environment variable GODEBUG.
// The kernel would pass it from its command line, but the parameter that operators and Metal3 know is fips=1. So /init
// reads /proc/cmdline and, if it has the parameter, executes itself again with the variable, before it opens anything.
// That costs some milliseconds. If it fails, the work is not started, because a node that silently uses other
// algorithms would be worse than one that reports an error. GODEBUG=fips140=only is not used: it makes algorithms that
// are not approved fail by panics in libraries. The agent refuses them itself where operators name them, with errors
// that list the alternatives.
//
// # Memory
//
// Go's garbage collector runs when the heap has doubled. After a config drive of 64 MiB the heap could exceed the
// memory of a machine with 384 MiB, and the kernel would panic, because there is no other process to kill. A soft limit
// of two thirds of the memory that is free at the start makes the collector run earlier on such machines, and has no
// effect on others.
//
// # The crash reporter
//
// When a panic ends PID 1, the Go runtime writes its stack with write(2), and then the kernel panics at once. Bytes
// that a serial port at 115200 baud has not sent by then are lost, and that is most of the stack. A port whose other
// end blocks the line would prevent the machine from restarting. A second process with the other end of a pipe can wait
// for the ports, with a time limit.
//
// # Modules wait for the first heartbeat
//
// Loading a module takes processor time: the kernel unpacks it and verifies its signature. On a machine with few or
// slow processors, modules of storage adapters delayed the first heartbeat. So they wait while the agent approaches it:
// after each module of a network card and at each phase of the agent's start, they wait for up to a second for the next
// one, and for up to three seconds in all. If a link has no carrier, a switch blocks the port for its spanning tree, or
// Ironic does not answer, a storage adapter starts to search for its disks a second later than it could. Nothing waits
// for the agent without a network card, without a URL of Ironic, or if the network waits for a config drive. An
// inspection at the start, a custom manager and a failed lookup need the drivers, and end the wait. On an emulated
// machine with two processors, the drivers of all devices are loaded as early as without the wait. Lower priorities for
// other modules had no effect.
//
// # Addresses of the iBFT
//
// The addresses of the table are used only for cards that get none by DHCP, and if there is no other static network
// data. A VLAN of the table is created at once. The router of the table leads only to the targets, because a storage
// network often has no way to Ironic. If no card has a lease, it is the default router.
//
// # A rescue begins in a new process
//
// The user of a rescue is root, and the agent's memory contains the token, passwords of image servers and the log.
// Memory that Go has used cannot be cleared reliably: values were copied, and the collector does not overwrite memory
// that it frees. So process 1 executes itself again: the kernel frees all of its memory, and the process number stays
// 1. A restart of the machine was rejected: Ironic has set it up to boot the user's disk.
//
// The kernel's own copies, its command line and its log, cannot be changed from outside. The command line is covered by
// a copy, which root can uncover, and docs/rescue.md says so. The kernel's log is overwritten by more lines than it can
// hold. SYSLOG_ACTION_CLEAR was rejected: it only hides lines from dmesg(1), and /dev/kmsg still shows them. The log is
// left as it is if it contains no secret, because the user needs it.
//
// Free pages still contain old data until they are used again. /proc/kcore would show them; the kernel's lockdown mode
// "confidentiality" closes it, and unlike a cover it cannot be taken back. Modules must then have a valid signature,
// which Debian's have. A kernel whose modules are not signed, or that lacks the mode, cannot load further drivers, or
// leaves its memory to root: the log has a warning.
//
// Everything that can be hidden is hidden before Ironic is told that the rescue succeeded, so that a failure can still
// be reported. Virtual media are removed then, too: the agent has read them. The RAM disk of UEFI HTTP boot is
// overwritten and read back. Releasing it by its driver was rejected: root can bind the driver again, or load it if the
// image lacks it. This is also why a RAM disk that only the firmware's table shows is an error. Persistent memory is
// never overwritten, because it can be the user's. A failure after the confirmation can only keep everybody out: the
// machine restarts.
//
// The iBFT is not hidden. By its CHAP secrets the firmware reaches the disk of the user's own system, whose initramfs
// reads the same table (rd.iscsi.firmware=1). A cover would keep nothing from a user who has been root of that system,
// and the rescue needs the secrets as long as it runs, to connect again after Ironic has moved the ports.
//
// The addresses of the agent's process are removed, not taken over: its sources of configuration are unknown to the new
// process, and static data of the provisioning network does not fit the networks of the user.
//
// The hash of the password is checked before Ironic is told that the rescue succeeded, and that the image has a shell,
// or a userland that can be mounted and contains one. Otherwise the command fails, and the agent continues: Ironic
// reports the node as "rescue failed", and not a rescue that nobody can log in to. ironic-python-agent stores any text
// as the hash. Its marker file is a hint there, and a failure to write it only logged; here process 1 needs it, so the
// command fails.
//
// # DHCP servers are asked again in a rescue
//
// Ironic moves the ports of the node after the rescue was confirmed. Switches change the VLAN of a port without a loss
// of the carrier, so no event shows when. Renewing at half of the lease's lifetime would take hours. The machine asks
// every five seconds for ten minutes: first whether its lease is still valid, which a server of another network
// refuses, and if nobody replies, for another one. Until then it keeps the lease, because a server that does not reply
// may be down. Setting links down and up was rejected: it would interrupt the user's connections each time.
package boot
