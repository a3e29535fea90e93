// Package inventory describes the machine in the form of the protocol: interfaces, cpu, memory, disks, vendor, boot and
// BMC, read from sysfs, procfs, netlink and the SMBIOS tables. Keys, types and the meaning of a missing value are the
// same as in ironic-python-agent's list_hardware_info.
//
// # The description is tested on the machine that it describes
//
// A fixture tree contains its author's assumptions about a machine. So package facts of the lab describes a virtual
// server with a disk on every bus twice in one boot: by the agent, and by lsblk, lshw, lscpu, lspci, dmidecode, ip,
// ethtool, ipmitool and udev of a Debian in a chroot. Each key is compared, also with the recorded data of
// ironic-python-agent for the same machine. Two differences are intended: of several by-path names of a disk the one
// without a suffix comes first, while ironic-python-agent uses the one that the directory lists last; and all USB
// devices that lshw calls generic are reported, while it misses those that share a hub.
//
// # A disk that cannot be described is an error beside the list
//
// A broken disk must not hide the others from an inspection, and an erase must not skip it. So the list of disks is
// returned with an error that names the missing disks. The inventory uses the list and logs a warning. If a disk is
// chosen or erased, the error counts.
package inventory
