// Package facts compares what the ramdisk says of a machine with what Debian's own tools say of the same machine in the
// same minute: lsblk, lscpu, lshw, lspci, lsusb, dmidecode, ethtool, ip, ipmitool and the links that udev makes. It holds
// tests only; guest is the /init of the machine under test, plain that of an aarch64 one, whose lscpu comes with the ramdisk.
package facts
