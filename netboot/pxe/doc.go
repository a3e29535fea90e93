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
package pxe
