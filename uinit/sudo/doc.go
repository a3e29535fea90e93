//go:build linux

// Package sudo runs programs as another user, for members of the group sudo and without a password. It has the options
// of sudo(8) that people and tools such as Ansible use, no configuration, and no log.
//
// It is /init under another name: the file must be setuid root. Whether a user may run programs is decided by the
// groups of the process, which the kernel keeps, so no file needs to be trusted.
//
// # Rights
//
// The user of a rescue expects sudo, and has it in images of ironic-python-agent. A file with the names of sudoers
// could be changed by a file system that is mounted over it. The server gives the processes of such users the group 27,
// Debian's sudo, and the kernel keeps it. The file is setuid root in the rescue only. Whatever name it is run under,
// except sudo, it gives up these rights before it does anything else.
package sudo
