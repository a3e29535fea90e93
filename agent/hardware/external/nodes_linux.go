package external

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// controlNodeSet describes the device nodes of a driver through which tools control its adapters. The driver has a
// character device number, but the kernel makes no node for it in /dev: the tools make it themselves, which they cannot
// do here.
type controlNodeSet struct {
	driver string // as in /proc/devices
	name   string // of the node in /dev; with a count, the minor number follows
	count  int    // of minor numbers; without it there is one, 0
}

// controlNodes are the nodes as smartmontools makes them (os_linux.cpp).
var controlNodes = []controlNodeSet{
	{driver: "megaraid_sas_ioctl", name: "megaraid_sas_ioctl_node"}, // MegaRAID and PERC: storcli, perccli, MegaCli
	{driver: "aac", name: "aac", count: 16},                         // Adaptec: arcconf
	{driver: "twe", name: "twe", count: 16},                         // 3ware: tw_cli. smartctl requires all 16
	{driver: "twa", name: "twa", count: 16},
	{driver: "twl", name: "twl", count: 16},
}

// makeControlNodes makes the nodes of the drivers that are loaded. /dev is the machine's, so that they are still there
// for the next request. Most programs need no such node: a failure is reported on the standard error only.
func makeControlNodes() {
	devices, err := os.ReadFile("/proc/devices")
	if err != nil {
		fmt.Fprintln(os.Stderr, "no device nodes of RAID controllers:", err)
		return
	}
	majors := characterMajors(string(devices))
	for _, n := range controlNodes {
		major, loaded := majors[n.driver]
		if !loaded {
			continue
		}
		for minor := range max(n.count, 1) {
			path := filepath.Join("/dev", n.name)
			if n.count > 0 {
				path += strconv.Itoa(minor)
			}
			if err := makeNode(path, unix.Mkdev(major, uint32(minor))); err != nil { //nolint:gosec // a small number
				fmt.Fprintln(os.Stderr, "make device node:", err)
			}
		}
	}
}

// characterMajors returns the major numbers of character devices in the text of /proc/devices, by name. A name can have
// several: the first counts.
func characterMajors(devices string) map[string]uint32 {
	majors := map[string]uint32{}
	_, devices, _ = strings.Cut(devices, "Character devices:\n")
	devices, _, _ = strings.Cut(devices, "Block devices:\n")
	for line := range strings.Lines(devices) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		major, err := strconv.ParseUint(number, 10, 32)
		if _, known := majors[name]; err == nil && !known {
			majors[name] = uint32(major)
		}
	}
	return majors
}

// makeNode makes the node of a character device. It replaces one with another number, which a driver gets when it is
// loaded again. Other requests, which make the same node at the same time, always find one.
func makeNode(path string, number uint64) error {
	var s unix.Stat_t
	if unix.Lstat(path, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == number {
		return nil
	}
	temporary := fmt.Sprintf("%s.%x", path, rand.Uint64())        //nolint:gosec // no secret
	err := unix.Mknod(temporary, unix.S_IFCHR|0o600, int(number)) //nolint:gosec // the kernel's number of 32 bits
	if err != nil {
		return &os.PathError{Op: "mknod", Path: temporary, Err: err}
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}
