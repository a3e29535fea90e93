// Package facts compares the ramdisk's description of a machine with the output of Debian's own tools on the same
// machine at the same time: lsblk, lscpu, lshw, lspci, lsusb, dmidecode, ethtool, ip, ipmitool and udev's links. It
// contains tests only. guest is the /init of the machine under test, plain the /init of an aarch64 machine, whose
// ramdisk contains lscpu.
package facts
