// Package container runs programs of container images without a container engine.
//
// [Resolve] reads the manifest and the configuration of an image in a registry. [Prepare] downloads and verifies its
// layers into scratch space: memory if they fit, otherwise the end of a disk. [Bundle.Run] runs a program in the
// image's file system, in namespaces of its own. [Bundle.Close] removes everything.
//
// # No engine
//
// podman with its helpers and libraries would be larger than the whole ramdisk, and containerd is a daemon with a store
// of its own. Of an engine only three things are needed here: a download with digests, an archive that is unpacked
// safely, and a process in namespaces. go-containerregistry has the formats and the authorization; requests go through
// package fetch, which limits time, size and rate, and resumes. The library's own transport was rejected for layers,
// because it has none of these limits.
//
// Layers are unpacked over each other into one directory, so no overlayfs is needed, and only whiteouts have to be
// applied. Names are resolved by openat2(2) with RESOLVE_IN_ROOT: a symbolic link of the image means the same as in the
// container. Go's os.Root rejects absolute links, which most images have. A layer is unpacked while it arrives, before
// its digest is known; nothing of it runs before all layers are verified, and a wrong one removes everything.
//
// # Locked mounts
//
// The root of the ramdisk is an initramfs, where pivot_root(2) does not work. The directory of the image is moved over
// the root instead, as podman does with no_pivot_root. That alone hides nothing from a program with CAP_SYS_ADMIN,
// which bootc needs: it would unmount its root and find the ramdisk below. The kernel can prevent that: mounts that
// were copied into a mount namespace of another user namespace are locked together. Process 1 of the container starts a
// process in a new user namespace, joins the mount namespace of that process, but not its user namespace, and ends it.
// From then on the container's mounts cannot be unmounted, moved or made writable, and covered files stay covered. A
// user namespace for the container itself was rejected: the kernel does not mount ext4, XFS and FAT there.
//
// A privileged container could also mount a second, writable proc and name a program in core_pattern, which the kernel
// starts outside of all namespaces. seccomp cannot see which file system mount(2) mounts. So the calls that mount wait
// for the agent (seccomp_unotify(2)). It reads the arguments once, checks them, and mounts in the place of the caller,
// by a process that enters its mount namespace, root and directory. It mounts file systems of disks, tmpfs, overlay,
// devpts and mqueue, and adds nodev. proc, sysfs and devtmpfs are answered with the container's own, restricted ones,
// because bootc runs its boot loader in a chroot with a proc of its own. The calls of the newer mount interface fail
// with ENOSYS, as on an older kernel; programs then use mount(2). Bind mounts, moves and unmounting need no
// supervision, because mounts are locked. bootc runs udevadm in the mount namespace of process 1, by setns(2), and is
// in that namespace already. The agent answers such a call with success, without any effect, and denies every other.
//
// # Capabilities, /proc/1/exe and /dev
//
// The container lacks the capabilities to load modules, to start another kernel, to read the kernel's log, to create
// device nodes, to open files by handle, for raw I/O, to trace processes, to set the clock, and to read or change the
// network traffic of the agent, all of which "podman run --privileged" grants. It has /proc/1 of its own process 1,
// which has the same capabilities, so that it can look into that process as bootc does. Firmware and kernel can still
// have errors, and root can write anything to the disk: the limits stop a program that reads everything that it finds,
// but do not make images of strangers safe.
//
// Process 1 of the container executes the agent's own file, which root of the container finds as /proc/1/exe. It could
// change the file's mode, owner and attributes, and so the ramdisk. So the agent opens its file on a mount of its own,
// which is read-only and in no mount namespace, and process 1 executes that one. A copy in memory was rejected: 15 MiB.
// PR_SET_DUMPABLE was rejected: then only a program with CAP_SYS_PTRACE could read the links of /proc/1, which bootc
// needs. ptrace(2) and pidfd_getfd(2) are not permitted, but /proc/1/mem can be written to. Process 1 has no capability
// and no file that the program does not have, except the socket to the agent: it can report another exit status.
//
// /dev of the container is a tmpfs. devtmpfs would show all disks, and a program could replace a node under which the
// agent knows a disk. The agent makes the nodes of the given disks and of their partitions from outside, after each
// message of the kernel; the container cannot. The database of udev is not provided: bootc then reads partitions by
// blkid.
//
// A container that waits in the kernel is abandoned after 15 minutes: everything that it has written must reach the
// disks before it ends, and slow disks are not dead.
//
// # Scratch space at the end of a disk
//
// An image of bootc unpacks to a few GiB, and small machines have less memory than that. The only other place is the
// disk that is about to be overwritten. Its last MiB stays free for the backup of the partition table; the space before
// it is an ext4 file system behind a loop device, which is opened without O_EXCL, so that the installer can partition
// the disk. A file system on the whole disk that shrinks later was rejected: the installer wants the disk empty.
//
// The space is zeroed when the step ends, for whatever reason, and read back past the page cache: otherwise a part of
// the image would remain outside of all partitions of the instance. A partition that reaches into it is an error. A
// power failure leaves it; the next cleaning erases the disk.
//
// A program that the kernel does not end keeps its space, also after the step. The agent opens the disks that such a
// program was given with O_EXCL and never closes them: the kernel then rejects every other exclusive user, and all code
// that erases, partitions or writes disks is one. A list of such disks in the agent was rejected, because each of these
// places would have to read it. A disk with a file system that the program mounted cannot be opened like this; the
// mount protects it, and the agent opens it when the program ends. The disks stay reserved after that, because the
// kernel can still write to the file system of the image.
//
// The unpacked size of an image is known only afterwards. Three times the compressed size is assumed. If memory turns
// out to be too small, the download starts again on the disk. By then it is known how many bytes were in use, and which
// part of the layers had arrived: the next space is for the whole at this ratio and a quarter more, but at least for
// twice and at most for four times the space that was full, because the rest can compress better or worse than the
// beginning. It is not all that the disk can spare: each reserved byte is written and read back when the step ends,
// which takes hours for a large disk. Space on the disk that is full is enlarged in the same way, but only once, which
// limits the cost of a small layer of terabytes. So, on a disk that is large enough, an image fails only if its files
// and its compressed layers together need more than eight times the compressed size, or more than four times the memory
// that was full first.
//
// The root file system becomes smaller by the space, and grows afterwards by the reserved size. It could stay so, and
// the instance could grow it; but the size of a root would then depend on the memory of the machine at the time of its
// deployment, and many bootable images have no program that grows XFS. The drivers of the kernel grow it, on a mount
// that no other process sees and that has nosuid, nodev and noexec: growth without a mount would need a writer for the
// structures of each file system. The agent thus mounts a file system that a program of the image wrote; that program
// could mount it by the same kernel before. The step does not fail if only the growth fails, because the system on the
// disk is complete and boots. Only growth that the table does not permit is such a failure, for example space that is
// not free. If the disk cannot be opened, read or written, or the primary GPT is broken, the step fails: nothing shows
// then that the system is complete.
//
// # What bootc checks of its container
//
// "bootc install to-disk" expects podman on a whole distribution. These are its checks in bootc of August 2026, with
// their source, and how each is satisfied:
//
//   - user 0, CAP_SYS_ADMIN in the bounding set (crates/lib/src/cli.rs, require_root): capabilities of a privileged
//     container.
//   - IPC namespace of process 1, which it joins (cli.rs, join_host_ipc_namespace): process 1 of the container has the
//     same.
//   - it is not process 1 (install.rs, require_host_pidns): process 1 is this program.
//   - /proc/1 belongs to user 0 (install.rs, require_host_userns): there is no user namespace.
//   - /run/.containerenv: engine podman, an image ID, not rootless (containerenv.rs, install.rs): the file.
//   - /dev, /var/lib/containers, /var/tmp and /run/udev are process 1's (crates/mount/src/mount.rs,
//     ensure_mirrored_host_mount): process 1 has the same root.
//   - /tmp is a tmpfs (install.rs, setup_tmp_mount): mounted.
//   - efivarfs of process 1, if there is one (install.rs, setup_sys_mount): mounted, with UEFI; only a kernel without
//     efivarfs, or firmware without variables, has none.
//   - SELinux of process 1 (lsm.rs, selinux_enabled): none; --disable-selinux.
//   - "udevadm settle" in the mount namespace of process 1 (install/baseline.rs, install.rs, run_in_host_mountns): the
//     image's own udevadm, which succeeds without udevd.
//   - the disk is not mounted in process 1 (install/baseline.rs): /proc/1/mountinfo of the container.
//   - a mount namespace that differs from process 1's, otherwise it runs "unshare -m" (cli.rs,
//     ensure_self_unshared_mount_namespace): unshare works.
//   - "podman inspect" of its own image in the mount namespace of process 1, and the layers in /var/lib/containers
//     (podman.rs, install.rs): not provided; --source-imgref=oci:…
//   - podman for images that are bound to the system (podstorage.rs): the image's own podman.
//
// The layers could be stored as podman stores them, with a replacement of "podman inspect". That was rejected: the
// store is a private format of several files and a database, while an OCI layout is a standard, and bootc has an option
// for it. The price is that the compressed layers need space, too.
package container
