package inventory

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/u-root/u-root/pkg/smbios"
)

func (s *Source) memory() Memory {
	var m Memory
	data, err := read(s.o.System.Proc("meminfo"))
	if err == nil {
		m.Total, err = parseMemTotal(data)
	}
	if err != nil {
		s.o.Log.Warn("inventory without memory size", "err", err)
	}
	physical, err := s.physicalMemory()
	if err != nil {
		s.o.Log.Warn("inventory without physical memory", "err", err)
		return m
	}
	mib := physical >> 20
	m.PhysicalMB = &mib
	return m
}

// parseMemTotal reads the bytes of memory out of /proc/meminfo, whose unit kB is 1024 bytes.
func parseMemTotal(meminfo []byte) (int64, error) {
	scanner := bufio.NewScanner(bytes.NewReader(meminfo))
	for scanner.Scan() {
		rest, found := strings.CutPrefix(scanner.Text(), "MemTotal:")
		if !found {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("MemTotal of meminfo: %w", err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("meminfo without MemTotal")
}

// physicalMemory adds up the memory devices (type 17) of the SMBIOS tables, in bytes.
func (s *Source) physicalMemory() (int64, error) {
	entry, err := read(s.o.System.Sys("firmware/dmi/tables/smbios_entry_point"))
	if err != nil {
		return 0, err
	}
	table, err := read(s.o.System.Sys("firmware/dmi/tables/DMI"))
	if err != nil {
		return 0, err
	}
	return sumMemoryDevices(entry, table)
}

func sumMemoryDevices(entry, table []byte) (size int64, err error) {
	// The parser trusts the lengths inside the tables; a firmware that gets them wrong must not end the agent.
	defer func() {
		if p := recover(); p != nil {
			size, err = 0, fmt.Errorf("SMBIOS tables: %v", p)
		}
	}()
	info, err := smbios.ParseInfo(entry, table)
	if err != nil {
		return 0, fmt.Errorf("SMBIOS tables: %w", err)
	}
	devices, err := info.GetMemoryDevices()
	if err != nil {
		return 0, fmt.Errorf("SMBIOS memory devices: %w", err)
	}
	for _, device := range devices {
		size += deviceBytes(device)
	}
	return size, nil
}

// deviceBytes is the size of one memory device (SMBIOS 3.7, 7.18.4): 0 is an empty slot, 0xffff an unknown size, 0x7fff
// refers to the extended size in MiB, and bit 15 changes the unit from MiB to KiB.
func deviceBytes(d *smbios.MemoryDevice) int64 {
	switch {
	case d.Size == 0 || d.Size == 0xffff:
		return 0
	case d.Size == 0x7fff:
		return int64(d.ExtendedSize&0x7fffffff) << 20
	case d.Size&0x8000 != 0:
		return int64(d.Size&0x7fff) << 10
	default:
		return int64(d.Size) << 20
	}
}
