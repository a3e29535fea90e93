package confine

import (
	"fmt"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
)

// architectures are those whose programs the ramdisk can run: 64-bit ones, and 32-bit ones, as many tools of vendors
// are.
var architectures = []*arch.Info{arch.X86_64, arch.I386, arch.AARCH64, arch.ARM}

// programCalls are the system calls that every program may make. They act on the program, its files, processes and
// sockets, or require a capability for what else they do. Calls of one architecture are listed, too.
//
// Calls for namespaces and sockets, and ioctl(2), are also checked by their arguments, see checkArguments. The device
// nodes that a program sees limit which devices it controls, not this list: tools of vendors use ioctls of their own.
//
// These calls are not permitted, for the reason in front of them:
//
//   - files of other mount namespaces: fanotify_init, fanotify_mark, open_by_handle_at, listmount, statmount
//   - mounts and namespaces: mount, umount2, pivot_root, setns, fsopen and other calls of that interface, clone3, whose
//     flags a filter cannot read
//   - memory and files of the kernel and of other processes: bpf, perf_event_open, ptrace, process_vm_readv,
//     process_vm_writev, process_madvise, pidfd_getfd, kcmp, lookup_dcookie, syslog, userfaultfd
//   - calls that a filter does not see: io_uring_setup; socketcall, whose arguments are in memory, and which most
//     32-bit programs of x86 use for their sockets
//   - the whole machine: modules, kexec_load, reboot, swapon, acct, quotactl, clocks, host names, vhangup
//   - keys: add_key, keyctl; request_key starts a program of the ramdisk
//   - 16-bit code: modify_ldt, vm86
//   - calls that no kernel has, or that no C library has used for 20 years
var programCalls = slices.Concat(
	// Files.
	[]string{
		"access", "arm_fadvise64_64", "arm_sync_file_range", "cachestat", "chdir", "chmod", "chown", "chown32",
		"close", "close_range", "copy_file_range", "creat", "dup", "dup2", "dup3", "faccessat", "faccessat2",
		"fadvise64", "fadvise64_64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchown32",
		"fchownat", "fcntl", "fcntl64", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr",
		"fstat", "fstat64", "fstatat", "fstatat64", "fstatfs", "fstatfs64", "fsync", "ftruncate", "ftruncate64",
		"futimesat", "getcwd", "getdents", "getdents64", "getxattr", "getxattrat", "inotify_add_watch",
		"inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "io_destroy", "io_getevents",
		"io_pgetevents", "io_pgetevents_time64", "io_setup", "io_submit", "ioctl", "lchown", "lchown32", "lgetxattr",
		"link", "linkat", "listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "_llseek", "lsetxattr",
		"lstat", "lstat64", "mkdir", "mkdirat", "mknod", "mknodat", "name_to_handle_at", "newfstatat", "open",
		"openat", "openat2", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2",
		"read", "readahead", "readlink", "readlinkat", "readv", "removexattr", "removexattrat", "rename", "renameat",
		"renameat2", "rmdir", "sendfile", "sendfile64", "setxattr", "setxattrat", "splice", "stat", "stat64",
		"statfs", "statfs64", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "sysfs", "tee",
		"truncate", "truncate64", "umask", "unlink", "unlinkat", "ustat", "utime", "utimensat", "utimensat_time64",
		"utimes", "vmsplice", "write", "writev",
	},
	// Waiting for files and events.
	[]string{
		"_newselect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
		"eventfd", "eventfd2", "poll", "ppoll", "ppoll_time64", "pselect6", "pselect6_time64", "select", "signalfd",
		"signalfd4",
	},
	// Memory.
	[]string{
		"brk", "cacheflush", "get_mempolicy", "madvise", "map_shadow_stack", "mbind", "membarrier", "memfd_create",
		"memfd_secret", "migrate_pages", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mmap2", "move_pages",
		"mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
		"pkey_mprotect", "remap_file_pages", "set_mempolicy", "set_mempolicy_home_node",
	},
	// Processes and threads. chroot requires a capability.
	[]string{
		"arch_prctl", "breakpoint", "capget", "capset", "chroot", "clone", "execve", "execveat", "exit",
		"exit_group", "fork", "futex", "futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake",
		"get_robust_list", "get_thread_area", "get_tls", "getcpu", "getegid", "getegid32", "geteuid", "geteuid32",
		"getgid", "getgid32", "getgroups", "getgroups32", "getpgid", "getpgrp", "getpid", "getppid", "getpriority",
		"getresgid", "getresgid32", "getresuid", "getresuid32", "getrlimit", "getrusage", "getsid", "gettid",
		"getuid", "getuid32", "ioprio_get", "ioprio_set", "landlock_add_rule",
		"landlock_create_ruleset", "landlock_restrict_self", "lsm_get_self_attr", "lsm_list_modules",
		"lsm_set_self_attr", "nice", "personality", "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64", "rseq",
		"sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
		"sched_getscheduler", "sched_rr_get_interval", "sched_rr_get_interval_time64", "sched_setaffinity",
		"sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list",
		"set_thread_area", "set_tid_address", "set_tls", "setfsgid", "setfsgid32", "setfsuid", "setfsuid32",
		"setgid", "setgid32", "setgroups", "setgroups32", "setpgid", "setpriority", "setregid", "setregid32",
		"setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid", "setreuid32", "setrlimit", "setsid",
		"setuid", "setuid32", "ugetrlimit", "unshare", "uretprobe", "vfork", "wait4", "waitid", "waitpid",
	},
	// Signals.
	[]string{
		"alarm", "kill", "pause", "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
		"rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64",
		"rt_tgsigqueueinfo", "sigaction", "sigaltstack", "signal", "sigpending", "sigprocmask", "sigreturn",
		"sigsuspend", "tgkill", "tkill",
	},
	// Sockets and communication between processes.
	[]string{
		"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "ipc", "listen",
		"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64", "mq_timedsend",
		"mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "recv", "recvfrom", "recvmmsg",
		"recvmmsg_time64", "recvmsg", "semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "send",
		"sendmmsg", "sendmsg", "sendto", "setsockopt", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "socket",
		"socketpair",
	},
	// Time, and what the kernel tells of the machine.
	[]string{
		"clock_getres", "clock_getres_time64", "clock_gettime", "clock_gettime64", "clock_nanosleep",
		"clock_nanosleep_time64", "getitimer", "getrandom", "gettimeofday", "nanosleep", "setitimer", "sysinfo",
		"time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_gettime64",
		"timer_settime", "timer_settime64", "timerfd_create", "timerfd_gettime", "timerfd_gettime64",
		"timerfd_settime", "timerfd_settime64", "times", "uname",
	},
)

// hardwareCalls are further calls for tools of hardware: access to I/O ports, for which a capability is required.
var hardwareCalls = []string{"ioperm", "iopl"}

// installerCalls are the further calls of a container that installs a system as bootc does (bootc's sources:
// crates/lib/src/install.rs and crates/mount). bootc unmounts, mounts directories elsewhere, and enters a new root. The
// mounts of the container are locked. A supervisor decides CallMount and CallSetns.
var installerCalls = []string{"move_mount", "open_tree", "pivot_root", "umount", "umount2"}

// Calls that a supervisor decides.
const (
	CallMount = "mount"
	CallSetns = "setns"
)

// probedCalls fail with ENOSYS unless they are permitted. Programs call them first, and something else on kernels that
// lack them: the C library for each thread and process, and mount(8). So they are neither logged nor decided by the
// agent.
var probedCalls = []string{
	"clone3", "fsconfig", "fsmount", "fsopen", "fspick", "listmount", "mount_setattr", "move_mount", "open_tree",
	"open_tree_attr", "statmount",
}

// missingCalls fail with ENOSYS, too. Kernels can lack them, and programs expect that.
var missingCalls = []string{"add_key", "keyctl", "request_key", "socketcall"}

// CheckAddedCall returns an error if name is no system call, or one that every program may make anyway.
func CheckAddedCall(name string) error {
	if slices.Contains(programCalls, name) || slices.Contains(hardwareCalls, name) {
		return fmt.Errorf("every program may make the system call %s; its arguments are not configurable", name)
	}
	return CheckCalls([]string{name})
}

// CheckCalls returns an error if a name is no system call of any architecture.
func CheckCalls(names []string) error {
	for _, name := range names {
		isKnown := func(a *arch.Info) bool {
			_, found := a.SyscallNames[name]
			return found
		}
		if !slices.ContainsFunc(architectures, isKnown) {
			return fmt.Errorf("system call %q is unknown", name)
		}
	}
	return nil
}
