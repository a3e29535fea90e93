//go:build linux

// Package sshd is the SSH server of the ramdisk, for users of a rescue and for operators. It implements RFC 4251 to
// 4254 with sessions (shell, commands, SFTP), and forwards neither ports, agents nor X11.
//
// The server is a process of its own, a [worker]: a panic or a lack of memory in it does not affect process 1. The
// protocol is implemented by x/crypto/ssh. Each session is a process with the user's numbers, in its own session of the
// kernel. SFTP is one of them, so that the kernel checks its rights.
//
// Three limits protect the server from anyone on the network: connections without a login (package admission), the
// time of a login, and attempts to guess a password (limiter). A user who has logged in is limited in the number of
// sessions only.
//
// # x/crypto without a wrapper
//
// gliderlabs/ssh wraps the same library. It would only accept connections, because its additions do not fit:
//
//   - Its handlers get the user of a connection's first attempt. A client can name another user in the next one: with
//     the password of the first it would log in as the second, unless every caller knows that (TestUserChanges).
//   - A session changes each line feed on a terminal into two characters, in raw mode too; TestTerminalIsTransparent
//     would fail. It has no terminal modes and no exit signals, and stores any number of variables.
//   - It confirms agent forwarding that it does not do, has no time limit for a login, and removes deadlines that
//     others set (TestNoForwarding, TestConnectionLimits).
//
// SFTP is pkg/sftp. Pseudo-terminals are opened by code of our own, because creack/pty also starts programs through
// os/exec. Nothing is forwarded: a user of the machine can start any program on it, also one that forwards, so this
// removes only code that the network can reach. A forwarded agent could be used by anyone who is root on the machine.
//
// # Guesses of passwords wait
//
// The address that sends most attempts can be the user's: all can come through one router. A wrong password therefore
// blocks no address and no account. Each address has five attempts at once, and then one every three seconds; all
// addresses together have fifty, and then ten per second. One machine can have all addresses of an IPv6 network, so the
// network has a limit of its own, ten times the rate of an address, because users are in it too. An attempt waits for
// its turn and is checked then. The limits of connections without a login bound the number of waiting attempts, so a
// user waits for half a minute at most. Accepted and abandoned attempts do not count, and keys are not delayed.
// Passwords are checked one at a time, because yescrypt takes up to 64 MiB for each.
//
// For a user that does not exist, the password is checked against the hash of another, so that the time is the same.
// The log contains the names of existing users only: people enter passwords as names. After the first ten failures it
// has at most one line in ten seconds, with the count.
package sshd
