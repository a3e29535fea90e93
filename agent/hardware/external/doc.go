// Package external runs hardware managers that are executables. The agent starts the executable once for each request
// and speaks JSON with it: one line on its standard input for the request, lines on its standard output for progress
// and the result. docs/managers.md describes the protocol, docs/manager-protocol.schema.json its messages. [FindTools]
// finds tools of manager roots, and runs them for built-in managers.
//
// In the ramdisk an executable runs in its own PID and mount namespaces, with a clean environment, without the files
// and kernel interfaces that contain the agent's token, without access to the agent's memory, see [Child], and with the
// system calls of a list, see [confine.ProgramPolicy]. It has the machine's devices, network and sysfs as root: this is
// not a sandbox.
//
// # One process for each request
//
// A process that stays would need a protocol for its restart, and a way to distinguish it from one that hangs; a start
// takes milliseconds. As in package chroot, the process is this program again, which enters its namespaces, hides the
// files that contain secrets, and then becomes the executable. Package confine has the parts that both use.
//
// # Confinement
//
// The confinement differs from package chroot's, because firmware tools need devices, sysfs, the network and
// CAP_SYS_ADMIN for ioctls. With this capability a mount over /proc could be removed, so the ramdisk's /proc is not
// below another one: it is unmounted. The root file system and /proc/sys are read-only, because the kernel starts
// programs that they name (/sbin/modprobe, core_pattern) outside of the namespaces; so are /sys/kernel (uevent_helper)
// and /sys/power. So is /dev, in which the agent finds disks by name. Loading modules, creating device nodes, kexec,
// BPF, mounting, tracing, process accounting, and opening files by handle, also below a mount, are denied. strace and
// gdb do not work there.
//
// # Updates are never killed
//
// A firmware update that is killed can leave a machine that needs a technician. So the agent never kills an executable
// while it runs a step that is not abortable, not even for a flood of output, which is read and discarded. The price is
// a command that does not end if such an executable hangs; the operator then restarts the machine, knowingly.
//
// A process that waits in the kernel for a device does not end when it is killed. The agent abandons it after 10 s and
// fails the request, because an adapter that hangs must not keep the node from Ironic.
//
// # Manager roots
//
// A manager root is a SquashFS image. A userland in the cpio archive would be unpacked into memory at every boot, also
// on nodes that do not need it; a compressed image occupies its packed size. Nothing of a root is mounted in the
// agent's own namespace. Each request mounts it in the namespace of its process, with a loop device that the kernel
// detaches with the last mount: there is nothing to clean up after a program that was killed, and files that one step
// has written do not reach the next. Mounting takes milliseconds. The agent lists the managers of a root by a process
// in the root, too: reading SquashFS in PID 1 would be a parser of foreign bytes in the agent, and the kernel has one.
//
// Tools find disks by udev's links, and libudev reads its files in /run. The ramdisk has no udev, so the process that
// enters the root writes both from the data of package block. The links are on a file system of that namespace, not in
// the agent's /dev.
//
// A plug-in of ironic-python-agent can select disks, for which the protocol has no request: each disk would start
// Python several times. Without that method the agent could erase a disk that the plug-in protects, so it lists no
// disks with such a plug-in.
//
// # Control nodes of RAID controllers
//
// Tools of vendors make the node for their driver by mknod(2). An executable cannot: with CAP_MKNOD it could make a
// node for the kernel's memory. So the agent makes these nodes before /dev becomes read-only, from a list of drivers. A
// list was preferred to nodes for all drivers of /proc/devices, because neither the names nor the minor numbers follow
// from it. A separate /dev for each request was rejected: it would lack devices that appear while a tool runs. The
// nodes are made in the machine's /dev, where udev or the tool would make them, and replaced atomically if their number
// has changed.
package external
