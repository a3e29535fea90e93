package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// show formats a layout as one line per partition: number, role, start and size in MiB, type, boot flag.
func show(l Layout) string {
	lines := []string{l.Scheme}
	for _, p := range l.Partitions {
		line := fmt.Sprintf("%d %s %d+%d %s", p.Number, p.Role, p.Start/mib, p.Size/mib, p.Type)
		if p.Boot {
			line += " boot"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// full returns needs with all partitions; Plan omits those that the machine does not need.
func full(change func(*Needs)) Needs {
	n := Needs{
		Scheme: GPT, ESP: 550 * mib, BIOSBoot: mib,
		Ephemeral: 1000 * mib, Swap: 99 * mib, ConfigDrive: 400 << 10, Root: 2048 * mib,
	}
	change(&n)
	return n
}

func bare(n *Needs) { n.Ephemeral, n.Swap, n.ConfigDrive = 0, 0, 0 }

// Parity: L2
func TestPlan(t *testing.T) {
	cases := []struct {
		name  string
		needs Needs
		want  string
	}{
		{"uefi", full(func(n *Needs) { n.UEFI = true }), `gpt
1 EFI system 1+550 C12A7328-F81F-11D2-BA4B-00A0C93EC93B
2 ephemeral 551+1000 0FC63DAF-8483-4772-8E79-3D69D8477DE4
3 swap 1551+99 0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
4 config drive 1650+1 0FC63DAF-8483-4772-8E79-3D69D8477DE4
5 root 1651+2048 0FC63DAF-8483-4772-8E79-3D69D8477DE4`},
		{"uefi has no msdos", full(func(n *Needs) { bare(n); n.UEFI, n.Scheme = true, MBR }), `gpt
1 EFI system 1+550 C12A7328-F81F-11D2-BA4B-00A0C93EC93B
2 root 551+2048 0FC63DAF-8483-4772-8E79-3D69D8477DE4`},
		{"bios gpt", full(func(*Needs) {}), `gpt
1 BIOS boot 1+1 21686148-6449-6E6F-744E-656564454649
2 ephemeral 2+1000 0FC63DAF-8483-4772-8E79-3D69D8477DE4
3 swap 1002+99 0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
4 config drive 1101+1 0FC63DAF-8483-4772-8E79-3D69D8477DE4
5 root 1102+2048 0FC63DAF-8483-4772-8E79-3D69D8477DE4`},
		{"bios msdos", full(func(n *Needs) { n.Scheme = MBR }), `mbr
1 ephemeral 1+1000 0x83
2 swap 1001+99 0x82
3 config drive 1100+1 0x83
4 root 1101+2048 0x83 boot`},
		{"bios msdos, root only", full(func(n *Needs) { bare(n); n.Scheme = MBR }), `mbr
1 root 1+2048 0x83 boot`},
		{"ppc msdos", full(func(n *Needs) { n.Scheme, n.POWER, n.ConfigDrive = MBR, true, 0 }), `mbr
1 PReP boot 1+8 0x41 boot
2 ephemeral 9+1000 0x83
3 swap 1009+99 0x82
4 root 1108+2048 0x83`},
		{"ppc gpt", full(func(n *Needs) { bare(n); n.POWER = true }), `gpt
1 PReP boot 1+8 9E1A2D38-C612-4316-AA26-8B49521E5A8B
2 root 9+2048 0FC63DAF-8483-4772-8E79-3D69D8477DE4`},
		{"ppc uefi", full(func(n *Needs) { bare(n); n.POWER, n.UEFI = true, true }), `gpt
1 EFI system 1+550 C12A7328-F81F-11D2-BA4B-00A0C93EC93B
2 root 551+2048 0FC63DAF-8483-4772-8E79-3D69D8477DE4`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, err := Plan(c.needs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, show(l)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			last := l.Partitions[len(l.Partitions)-1]
			if last.Role != RoleRoot || l.Find(RoleRoot).Number != last.Number {
				t.Errorf("the last partition is %s, want root", last.Role)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		needs Needs
		err   string
	}{
		"five partitions on msdos": {
			full(func(n *Needs) { n.Scheme, n.POWER = MBR, true }), "4 primary partitions, 5 are needed",
		},
		"no root":       {full(func(n *Needs) { n.Root = 0 }), "size of the root partition: 0 bytes"},
		"negative swap": {full(func(n *Needs) { n.Swap = -1 }), "size of the swap partition: -1 bytes"},
		"no ESP": {
			full(func(n *Needs) { n.UEFI, n.ESP = true, 0 }), "size of the EFI system partition: 0 bytes",
		},
		"overflow":     {full(func(n *Needs) { n.Swap = 1<<63 - 1 }), "size of the swap partition"},
		"other scheme": {full(func(n *Needs) { n.Scheme = "loop" }), `"loop"`},
	} {
		if _, err := Plan(c.needs); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.err)
		}
	}
}

func plan(t *testing.T, n Needs) Layout {
	t.Helper()
	l, err := Plan(n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestFits(t *testing.T) {
	root := func(scheme string, size int64) Layout {
		return plan(t, Needs{Scheme: scheme, BIOSBoot: mib, Root: size})
	}
	const tib = 1 << 40
	for name, c := range map[string]struct {
		layout       Layout
		size, sector int64
		err          string
	}{
		"gpt with room for its backup": {root(GPT, 97*mib), 100 * mib, 512, ""},
		"gpt without":                  {root(GPT, 98*mib), 100 * mib, 512, "space up to byte 104840704"},
		"gpt without, 4K":              {root(GPT, 98*mib), 100 * mib, 4096, "space up to byte 104837120"},
		"mbr to the end":               {root(MBR, 99*mib), 100 * mib, 512, ""},
		"mbr over the end":             {root(MBR, 100*mib), 100 * mib, 512, "space up to byte 104857600"},
		"mbr to 2 TiB":                 {root(MBR, 2*tib-mib), 3 * tib, 512, ""},
		"mbr over 2 TiB":               {root(MBR, 2*tib), 3 * tib, 512, "an MBR reaches to 2199023255552"},
		"mbr over 2 TiB, 4K":           {root(MBR, 2*tib), 3 * tib, 4096, ""},
	} {
		err := c.layout.Fits(c.size, c.sector)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
	}
}

// tableOf returns the table of a layout.
func tableOf(l Layout) *Table {
	t := &Table{Scheme: l.Scheme}
	for _, p := range l.Partitions {
		t.Partitions = append(t.Partitions, p.Partition)
	}
	return t
}

func TestAdopt(t *testing.T) {
	layout := plan(t, full(func(n *Needs) { n.UEFI = true }))
	for name, c := range map[string]struct {
		change func(*Table)
		err    string
	}{
		"the same":            {func(*Table) {}, ""},
		"root has grown":      {func(t *Table) { t.Partitions[4].Size += 7 * mib }, ""},
		"larger config drive": {func(t *Table) { t.Partitions[3].Size += mib; t.Partitions[4].Start += mib }, ""},
		"smaller ESP": {func(t *Table) {
			t.Partitions[0].Size -= 350 * mib
			for i := range t.Partitions[1:] {
				t.Partitions[i+1].Start -= 350 * mib
			}
		}, ""},
		"one partition more":   {func(t *Table) { t.Partitions = append(t.Partitions, Partition{Number: 6}) }, ""},
		"smaller root":         {func(t *Table) { t.Partitions[4].Size -= mib }, "size of partition 5 (root)"},
		"smaller config drive": {func(t *Table) { t.Partitions[3].Size /= 2 }, "size of partition 4 (config drive)"},
		"moved root":           {func(t *Table) { t.Partitions[4].Start += mib }, "start of partition 5 (root)"},
		"larger ephemeral": {
			func(t *Table) { t.Partitions[1].Size += mib; t.Partitions[2].Start += mib },
			"size of partition 2 (ephemeral)",
		},
		"moved ephemeral": {func(t *Table) { t.Partitions[1].Start += mib }, "start of partition 2 (ephemeral)"},
		"without config drive": {
			func(t *Table) { t.Partitions = t.Partitions[:4]; t.Partitions[3].Type = TypeESP },
			"type of partition 4 (config drive)",
		},
		"without a root": {func(t *Table) { t.Partitions = t.Partitions[:4] }, "partition 5 (root) is missing"},
		"msdos":          {func(t *Table) { t.Scheme = MBR }, "scheme of the partition table: got mbr"},
		"a broken copy":  {func(t *Table) { t.Damaged = true }, "broken"},
		"another partition 1": {
			func(t *Table) { t.Partitions[0].Type = TypeBIOSBoot }, "type of partition 1 (EFI system)",
		},
		"in another order": {
			func(t *Table) { t.Partitions[1].Number, t.Partitions[2].Number = 3, 2 },
			"type of partition 2 (ephemeral)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := tableOf(layout)
			c.change(table)
			got, err := layout.Adopt(table)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range got.Partitions {
				if p.Partition != table.Partitions[i] || p.Role != layout.Partitions[i].Role {
					t.Errorf("got %+v, want %+v as it lies on the disk", p, table.Partitions[i])
				}
			}
		})
	}
}
