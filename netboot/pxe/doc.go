// Package pxe boots a kernel and an initramfs on machines of one network: by PXE (Preboot Execution Environment 2.1) in
// BIOS and UEFI, by UEFI HTTP boot (UEFI 2.10, section 24.7), and by iPXE. It combines the servers of package server.
//
// Firmware gets iPXE first, or a signed shim and GRUB for Secure Boot. These fetch a script with the kernel parameters
// of their machine, and then kernel and initramfs by HTTP. The path of each file begins with the MAC address of the
// machine that fetches it, so that the requests of one start become one line of the log.
//
// By default the network's own DHCP server assigns addresses, and this package only adds the boot files, as a proxy. It
// assigns addresses itself if it has a range and a list of machines, and only while no other DHCP server answers.
//
// Limits: IPv4; one interface; no relay agents. Requests are not authenticated: everyone on the network can read the
// kernel parameters of every machine.
//
// # A proxy by default
//
// Two DHCP servers on a network assign the same addresses twice, so the default is a proxy, whose replies contain no
// address. With a range, package pxe searches for other servers first and then every minute, and assigns addresses only
// to listed machines: a forgotten process cannot take over a network. It does not share port 67 with a DHCP server on
// the same computer and interface. Both would receive broadcasts, but the kernel delivers a client's renewal, which is
// sent to the address of the server, only to the socket that is bound to the interface, which is the proxy's. The port
// is only tested before it is opened, because a DHCP server for other interfaces can start later and must get it.
//
// # The path names the machine
//
// The path of each file begins with the MAC address of the machine, so that the server knows who fetches kernel and
// initramfs and can report in one line whether a start has succeeded, without assumptions about addresses. The
// parameters of a machine are under that path only. This is no protection, because MAC addresses are public on their
// network. Therefore the sockets are bound to the interface: an address alone does not exclude other networks of the
// computer, because the kernel accepts packets to any of its addresses on every interface. Programs of the computer
// itself are excluded, too, because their packets arrive on the loopback.
package pxe
