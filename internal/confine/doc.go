// Package confine limits the process of a program that is not part of the ramdisk: the system calls and capabilities
// that it can use, what it sees of the ramdisk, and how long the ramdisk waits for its end. storage/bootloader/chroot,
// agent/hardware/external and agent/container combine its functions. Functions that limit something affect the calling
// thread or its mount namespace, and the programs that the thread executes next. [Serve] and [NewDenialSocket] run in
// the agent and decide the system calls that wait for a reply.
//
// # System calls are permitted by a list
//
// With CAP_SYS_ADMIN, which bootc and the tools of vendors need, most system calls that a kernel has gained in 15 years
// are a way to its other namespaces, its memory or its log. A list of denied calls has to name each of them in time;
// the former one lacked statmount(2), listmount(2) and request_key(2). So this package lists the permitted calls by
// name: the calls of every program, and a few more for a container that installs a system. The lists hold for 64-bit
// and 32-bit programs. The numbers come from elastic/go-seccomp-bpf, which generates them from the kernel; its filters
// are not used, because they are for one architecture and cannot ask the agent. The list of Docker was not taken over:
// it depends on capabilities, and with CAP_SYS_ADMIN it permits calls that must fail here.
//
// Other calls wait for the agent (seccomp_unotify(2)), which lets them fail and logs each once by its name, for each
// program that it starts. The kernel's own log of seccomp has numbers only, and repeats them. No call ends the program.
// The error is EPERM, or ENOSYS for calls that kernels can lack: calls that are newer than the list, socketcall(2), and
// the keys of the kernel. clone3(2), whose flags a filter cannot read, and the newer interface for mounts fail with
// ENOSYS in the kernel and without a line of the log: the C library tries clone3(2) for each thread, and such a program
// must not wait for the agent. An operator can permit further calls to one manager when the image is built: it is the
// operator's program, and the alternative would be an image without any filter.
//
// socketcall(2) of i386 has its arguments in memory, so that it would permit every socket to every program on amd64. It
// is not permitted, although most 32-bit programs of x86 use it; programs that need sockets require permission. The
// agent could make their sockets, but would have to repeat the kernel's checks of capabilities and namespaces. Keys of
// the kernel are not permitted, because request_key(2) starts a program of the ramdisk; cryptsetup works without.
//
// # Calls that are decided by their arguments
//
// Some calls are decided by their arguments, in the kernel and without a line of the log. Ioctls of namespaces are
// denied: NS_MNT_GET_NEXT returns other mount namespaces to a program with CAP_SYS_ADMIN, depending on the version of
// the kernel. Ioctls that freeze or shut down a file system are denied, except to an installer, and so are ioctls that
// enter text into a terminal. Other ioctls are not filtered: tools of vendors have their own, and the nodes in /dev
// decide which devices they reach. No program makes a user namespace, in which it would have all capabilities. Of
// sockets, only the usual families are permitted, and of netlink(7) only protocols that tools for hardware use: others
// lead to the hypervisor, attach disks, or change audit and firewall. AF_ALG is not permitted: splice(2) passes it
// pages of files that a program can only read, and the root of the ramdisk is such pages. Denied protocols fail as if
// the kernel lacked them, because PAM and libaudit accept only that. Managers may listen for uevents, which libusb
// requires. With CAP_SYS_ADMIN they can also forge some: the ramdisk reads the device in sysfs, whatever a uevent says.
package confine
