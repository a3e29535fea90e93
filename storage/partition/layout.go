package partition

import (
	"fmt"
)

// Role is the purpose of a partition of a Layout.
type Role string

// Roles, in their order in a layout.
const (
	RoleESP         Role = "EFI system"
	RoleBIOSBoot    Role = "BIOS boot"
	RolePReP        Role = "PReP boot"
	RoleEphemeral   Role = "ephemeral"
	RoleSwap        Role = "swap"
	RoleConfigDrive Role = "config drive"
	RoleRoot        Role = "root"
)

// Needs describes the partitions that a disk needs. Sizes are in bytes and are rounded up to whole MiB.
type Needs struct {
	Scheme string // GPT or MBR
	UEFI   bool   // add an EFI system partition; the scheme is then always GPT
	// POWER means that the machine has a processor of the 64-bit POWER family, which without UEFI boots from a PReP
	// partition.
	POWER bool

	ESP, BIOSBoot                      int64 // sizes if these partitions are needed
	Ephemeral, Swap, ConfigDrive, Root int64 // 0 means none; Root is required
}

// prepSize is the size of the PReP partition in bytes.
const prepSize = 8 << 20

// Layout describes the partitions of a disk that boots an image of a root file system. They are numbered in their
// order. The first starts at one MiB, each other where the previous one ends, and root is the last, so that it can
// grow.
type Layout struct {
	Scheme     string
	Partitions []Planned
}

// Planned is a partition of a Layout. Plan sets Start and Size, but not UUID.
type Planned struct {
	Role Role
	Partition
}

// types are the partition types of the roles on a GPT and on an MBR.
var types = map[Role][2]string{
	RoleESP:         {TypeESP},
	RoleBIOSBoot:    {TypeBIOSBoot},
	RolePReP:        {TypePReP, "0x41"},
	RoleEphemeral:   {TypeLinux, TypeMBRLinux},
	RoleSwap:        {TypeSwap, "0x82"},
	RoleConfigDrive: {TypeLinux, TypeMBRLinux},
	RoleRoot:        {TypeLinux, TypeMBRLinux},
}

// partitionName is the name of all partitions of a layout on a GPT. It is parted's default.
const partitionName = "primary"

// Plan computes the layout of a disk. It returns an error if no disk can meet the needs: for negative sizes, no root,
// or more partitions than an MBR has.
func Plan(n Needs) (Layout, error) {
	l := Layout{Scheme: n.Scheme}
	if n.UEFI {
		l.Scheme = GPT
	}
	if l.Scheme != GPT && l.Scheme != MBR {
		return Layout{}, fmt.Errorf("partition scheme %q is neither %s nor %s", n.Scheme, GPT, MBR)
	}
	if n.Root <= 0 {
		return Layout{}, fmt.Errorf("invalid size of the root partition: %d bytes", n.Root)
	}
	prep := !n.UEFI && n.POWER
	for _, p := range []struct {
		role   Role
		wanted bool
		size   int64
		boot   bool // on an MBR
	}{
		{RoleESP, n.UEFI, n.ESP, false},
		{RoleBIOSBoot, !n.UEFI && !n.POWER && l.Scheme == GPT, n.BIOSBoot, false},
		{RolePReP, prep, prepSize, true},
		{RoleEphemeral, n.Ephemeral != 0, n.Ephemeral, false},
		{RoleSwap, n.Swap != 0, n.Swap, false},
		{RoleConfigDrive, n.ConfigDrive != 0, n.ConfigDrive, false},
		{RoleRoot, true, n.Root, !prep},
	} {
		if !p.wanted {
			continue
		}
		if p.size <= 0 || p.size > maxPlanned {
			return Layout{}, fmt.Errorf("invalid size of the %s partition: %d bytes", p.role, p.size)
		}
		l.add(p.role, p.size, p.boot)
	}
	if err := l.checkCount(); err != nil {
		return Layout{}, err
	}
	return l, nil
}

// checkCount returns an error if an MBR has too few entries for the layout. go-diskfs would drop the others.
func (l Layout) checkCount() error {
	if l.Scheme == MBR && len(l.Partitions) > 4 {
		return fmt.Errorf("an MBR has 4 primary partitions, %d are needed", len(l.Partitions))
	}
	return nil
}

// maxPlanned is the largest size of a partition in bytes, so that sums of sizes cannot overflow.
const maxPlanned = 1 << 58

func (l *Layout) add(role Role, size int64, boot bool) {
	p := Planned{Role: role, Partition: Partition{
		Number: len(l.Partitions) + 1, Start: l.end(), Size: (size + alignment - 1) / alignment * alignment,
	}}
	if l.Scheme == GPT {
		p.Type, p.Name = types[role][0], partitionName
	} else {
		p.Type, p.Boot = types[role][1], boot
	}
	l.Partitions = append(l.Partitions, p)
}

// end returns the start of the next partition.
func (l *Layout) end() int64 {
	if len(l.Partitions) == 0 {
		return alignment
	}
	last := l.Partitions[len(l.Partitions)-1]
	return last.Start + last.Size
}

// Find returns the partition with a role, nil if there is none.
func (l *Layout) Find(role Role) *Planned {
	for i := range l.Partitions {
		if l.Partitions[i].Role == role {
			return &l.Partitions[i]
		}
	}
	return nil
}

// Adopt returns the layout with the partitions of an existing table, which need not be written again. It returns an
// error if the table differs from the layout. The config drive and root may be larger than planned: an earlier config
// drive was larger, or a system has grown its root. The EFI system and BIOS boot partitions may have any size, because
// the configuration may have changed. Partitions with higher numbers are ignored.
func (l Layout) Adopt(t *Table) (Layout, error) {
	if t.Scheme != l.Scheme {
		return Layout{}, fmt.Errorf("scheme of the partition table: got %s, want %s", t.Scheme, l.Scheme)
	}
	if t.Damaged {
		return Layout{}, fmt.Errorf("one copy of the disk's %s is broken", t.Scheme)
	}
	existing := map[int]Partition{}
	for _, p := range t.Partitions {
		existing[p.Number] = p
	}
	adopted := Layout{Scheme: l.Scheme}
	for _, want := range l.Partitions {
		got, ok := existing[want.Number]
		if !ok {
			return Layout{}, fmt.Errorf("partition %d (%s) is missing", want.Number, want.Role)
		}
		larger := want.Role == RoleConfigDrive || want.Role == RoleRoot
		anySize := want.Role == RoleESP || want.Role == RoleBIOSBoot
		switch {
		case got.Type != want.Type:
			return Layout{}, fmt.Errorf("type of partition %d (%s): got %s, want %s",
				want.Number, want.Role, got.Type, want.Type)
		case got.Start != adopted.end():
			return Layout{}, fmt.Errorf("start of partition %d (%s): got byte %d, want byte %d",
				want.Number, want.Role, got.Start, adopted.end())
		case !anySize && (got.Size < want.Size || got.Size > want.Size && !larger):
			return Layout{}, fmt.Errorf("size of partition %d (%s): got %d bytes, want %d",
				want.Number, want.Role, got.Size, want.Size)
		}
		adopted.Partitions = append(adopted.Partitions, Planned{want.Role, got})
	}
	return adopted, nil
}
