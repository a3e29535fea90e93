//go:build linux

// Package worker runs a part of this program as a process of its own, a worker, and ends it together with all processes
// that it has started, however they detached themselves.
//
// Process 1 starts a supervisor, and the supervisor starts the worker. Orphans below the supervisor become its children
// (PR_SET_CHILD_SUBREAPER, see prctl(2)). When the worker has ended, or when process 1 closes a pipe to the supervisor,
// the supervisor kills its children until none is left. It kills only its own children, whose numbers the kernel does
// not reuse before it has waited for them.
//
// If the supervisor itself is killed, for example for lack of memory, the kernel kills the worker (PR_SET_PDEATHSIG),
// and process 1 kills all other processes that they have started. It recognizes them by their IPC namespace. A process
// can leave the namespace with the rights of root, or in a user namespace of its own. Any user can create one, because
// the containers of the agent need user namespaces. Process 1 does not kill a process that has left; the supervisor
// does, as long as it runs.
//
// A worker gets its input on standard input, and its log lines go through standard output to process 1.
//
// # Why a process of its own
//
// Anyone on the network can send data to an SSH server. Its parsers are in x/crypto, in goroutines that the library
// starts, so a panic there cannot be contained. The server is therefore not part of process 1: it is this program once
// more, and process 1 starts it again if it ends. The prompts on the consoles are such a process, too, because process
// 1 could not distinguish the programs of a user there from others.
//
// Programs of a user outlive a session if they were detached, as the user expects, but none may outlive the server: a
// lockdown ends all logins. Killing the server does not kill them, and the kernel gives orphans to process 1, which
// cannot tell who started them. A PID namespace was rejected: "reboot" in it would end the namespace only, and "ps"
// would not show the processes of the machine. Control groups are not mounted in the ramdisk.
//
// A parent death signal for each session was rejected for the case that the supervisor is killed: processes that a
// session starts do not inherit it. All processes below the supervisor inherit its IPC namespace, in which nothing else
// of the machine differs. A root shell can leave it on purpose (unshare --ipc), but then it can do anything else, too;
// any other user can leave it in a user namespace (unshare --user --ipc). user.max_user_namespaces=0 would prevent
// that, but containers of the agent need a user namespace to lock mounts.
//
// Process 1 ignores some signals, such as SIGHUP, and programs inherit that. The server handles all signals instead, so
// that shells get the default: otherwise the end of a connection would end nothing.
package worker
