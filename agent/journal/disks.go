package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf16"

	"ironroot/storage/block"
	"ironroot/storage/efivarfs"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// devices returns each disk, followed by its partitions. It returns the errors of [block.Disks].
func devices(ctx context.Context, sys sysfs.Root) ([]block.Device, error) {
	disks, err := block.Disks(ctx, sys)
	var all []block.Device
	for _, d := range disks {
		parts, _ := block.Partitions(ctx, sys, d.Name) // after an error only the disk is listed
		all = append(append(all, d), parts...)
	}
	return all, err
}

func blockTable(ctx context.Context, sys sysfs.Root) ([]byte, error) {
	all, err := devices(ctx, sys)
	var out bytes.Buffer
	fmt.Fprintf(&out, "%-16s %-6s %16s %4s %3s %-8s %-20s %-24s %s\n",
		"KNAME", "TYPE", "SIZE", "ROTA", "RO", "TRAN", "MODEL", "SERIAL", "WWN")
	for _, d := range all {
		fmt.Fprintf(&out, "%-16s %-6s %16d %4d %3d %-8s %-20s %-24s %s\n", d.Name, d.Type, d.Size, bit(d.Rotational),
			bit(d.ReadOnly), d.Transport, d.Model, d.Serial, d.WWN)
	}
	return out.Bytes(), err
}

func blockPairs(ctx context.Context, sys sysfs.Root) ([]byte, error) {
	all, err := devices(ctx, sys)
	var out bytes.Buffer
	for _, d := range all {
		fmt.Fprintf(&out, "KNAME=%q PATH=%q TYPE=%q SIZE=\"%d\" MODEL=%q VENDOR=%q SERIAL=%q WWN=%q HCTL=%q TRAN=%q "+
			"ROTA=\"%d\" RO=\"%d\" RM=\"%d\" LOG-SEC=\"%d\" PHY-SEC=\"%d\"\n", d.Name, d.Path, d.Type, d.Size, d.Model,
			d.Vendor, d.Serial, d.WWN, d.HCTL, d.Transport, bit(d.Rotational), bit(d.ReadOnly), bit(d.Removable),
			d.LogicalSector, d.PhysicalSector)
	}
	return out.Bytes(), err
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func partitionTables(ctx context.Context, sys sysfs.Root) ([]byte, error) {
	disks, err := block.Disks(ctx, sys)
	var out bytes.Buffer
	for _, d := range disks {
		fmt.Fprintf(&out, "%s: %d bytes, sectors of %d bytes\n", d.Path, d.Size, d.LogicalSector)
		table, err := partition.Read(ctx, sys.Dev(strings.TrimPrefix(d.Path, "/dev/")))
		if err != nil {
			fmt.Fprintf(&out, "  %v\n", err)
			continue
		}
		fmt.Fprintf(&out, "  partition table: %s\n", table.Scheme)
		for _, p := range table.Partitions {
			fmt.Fprintf(&out, "  %3d start %16d size %16d type %s uuid %s name %q\n",
				p.Number, p.Start, p.Size, p.Type, p.UUID, p.Name)
		}
	}
	return out.Bytes(), err
}

// multipathMaps lists the multipath maps, and their paths with their state.
func multipathMaps(ctx context.Context, sys sysfs.Root) ([]byte, error) {
	disks, err := block.Disks(ctx, sys)
	var out []byte // without maps, the archive contains an empty file
	for _, d := range disks {
		if d.Type != "mpath" {
			continue
		}
		out = fmt.Appendf(out, "%s (%s) %s %s,%s size=%d\n", d.Name, d.WWN, d.Name, d.Vendor, d.Model, d.Size)
		paths, err := os.ReadDir(sys.Sys("class/block", d.Name, "slaves"))
		if err != nil {
			out = fmt.Appendf(out, "  %v\n", err)
		}
		for _, path := range paths {
			state, err := os.ReadFile(sys.Sys("class/block", path.Name(), "device/state"))
			if err != nil {
				state = []byte(err.Error())
			}
			out = fmt.Appendf(out, "  %s %s\n", path.Name(), bytes.TrimSpace(state))
		}
	}
	return out, err
}

// bootEntries lists the firmware's boot options: UEFI Specification 2.10, section 3.1.3, without their device paths.
func bootEntries(_ context.Context, sys sysfs.Root) ([]byte, error) {
	names, err := filepath.Glob(sys.Sys("firmware", "efi", "efivars", "Boot*-"+efivarfs.GlobalGUID))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("no EFI variables: the machine was not booted by UEFI")
	}
	var out bytes.Buffer
	for _, name := range names {
		short, _, _ := strings.Cut(filepath.Base(name), "-")
		data, err := readVariable(name)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", short, err)
			continue
		}
		fmt.Fprintf(&out, "%s: %s\n", short, describeVariable(short, data))
	}
	return out.Bytes(), nil
}

// readVariable returns a variable's data without its attributes.
func readVariable(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(data) < 4 {
		return nil, fs.ErrInvalid
	}
	return data[4:], nil
}

func describeVariable(name string, data []byte) string {
	switch {
	case name == "BootOrder" || name == "BootCurrent" || name == "BootNext":
		var order []string
		for ; len(data) >= 2; data = data[2:] {
			order = append(order, fmt.Sprintf("%04X", binary.LittleEndian.Uint16(data)))
		}
		return strings.Join(order, ",")
	case len(name) == len("Boot0000") && len(data) >= 6:
		active := " "
		if binary.LittleEndian.Uint32(data)&1 != 0 {
			active = "*"
		}
		return active + " " + utf16Text(data[6:])
	}
	return fmt.Sprintf("%d bytes", len(data))
}

func utf16Text(data []byte) string {
	var units []uint16
	for ; len(data) >= 2; data = data[2:] {
		unit := binary.LittleEndian.Uint16(data)
		if unit == 0 {
			break
		}
		units = append(units, unit)
	}
	return printable(string(utf16.Decode(units)))
}
