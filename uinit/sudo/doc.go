//go:build linux

// Package sudo is the command sudo of a rescue. Its user is root, so the program of the arguments is run as it is. The
// options of sudo(8) that people and tools such as Ansible use are accepted. No program runs as another user.
//
// # The user of a rescue is root
//
// With ironic-python-agent, the user rescue has a number of its own, and sudo without a password. Such a user can do
// everything that root can, with a setuid program in between. Here the processes of the user are root's, no file
// is setuid, and sudo runs its arguments, because people and scripts write it.
package sudo
