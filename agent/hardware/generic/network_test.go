package generic

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// RAID steps use no disk of a network and delete no array on one, unless the option allows it. A step
// that needs it fails before the first write, and names these disks. A disk that may or may not belong to this machine
// fails the step.
//
// Parity: N2 (disks of a network), N3 (disks of a network)
func TestRAIDNetworkDisks(t *testing.T) {
	const all, chosen = `{"controller": "software", "raid_level": "1", "size_gb": "MAX"`,
		`, "physical_disks": [{"serial": "A"}, {"serial": "B"}]`
	disk := func(t *testing.T, d block.Device, serial, network string) block.Device {
		t.Helper()
		d.Serial, d.Serials, d.Network = serial, []string{serial}, network
		return d
	}
	blank := func(t *testing.T) block.Device { t.Helper(); return raidtest.BlankDisk(t, 3*gib) }
	unknown := blank(t)
	unknown.NetworkUnread = errors.New("read transport: file hangs")
	first, second := raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1}),
		raidtest.MemberDisk(t, testenv.RAID{Name: "data", Level: 1, Member: 1})
	third, fourth := raidtest.MemberDisk(t, testenv.RAID{Name: "san", Level: 1, UUID: "uuid-of-the-san-"}),
		raidtest.MemberDisk(t, testenv.RAID{Name: "san", Level: 1, Member: 1, UUID: "uuid-of-the-san-"})
	for name, c := range map[string]struct {
		disks  []block.Device
		config string // "" deletes the configuration
		want   string // of the error; with the paths of the disks for 1 and 2
	}{
		"all disks": {
			[]block.Device{disk(t, blank(t), "A", ""), disk(t, blank(t), "B", "iscsi"), disk(t, blank(t), "C", "")},
			all + "}", "",
		},
		"too few": {
			[]block.Device{disk(t, blank(t), "A", ""), disk(t, blank(t), "B", "fc")},
			all + "}",
			"; reached over a network, and erase_network_disks is not set: 2 (fc)",
		},
		"hints": {
			[]block.Device{disk(t, blank(t), "A", ""), disk(t, blank(t), "B", "nvme-tcp")},
			all + chosen + "}",
			"from the list 1; reached over a network, and erase_network_disks is not set: 2 (nvme-tcp)",
		},
		"not known": {
			[]block.Device{disk(t, blank(t), "A", ""), unknown, disk(t, blank(t), "C", "")},
			all + "}",
			"not known whether 2 is reached over a network: read transport: file hangs",
		},
		"array on disks of a network": {
			[]block.Device{disk(t, third, "A", "iscsi"), disk(t, fourth, "B", "iscsi")}, "", "",
		},
		"array with a member of a network": {
			[]block.Device{disk(t, first, "A", ""), disk(t, second, "B", "iscsi")},
			"",
			`raid1 array "data" has members that the step must not change: ` +
				"1, 2; reached over a network, and erase_network_disks is not set: 2 (iscsi)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := make([][]byte, len(c.disks))
			for i, d := range c.disks {
				before[i] = head(t, d)
			}
			run := func(allowed bool) (*raidtest.FakeKernel, error) {
				m, kernel := onThisMachine(t, c.disks...), raidtest.NewKernel(t)
				m.kernel = kernel
				m.o.Config.Update(func(o *config.Config) { o.EraseNetworkDisks = allowed })
				if c.config == "" {
					_, err := m.deleteConfiguration(t.Context(), hardware.Call{Node: nodeWith(t, `"properties": {}`)})
					return kernel, err
				}
				n := nodeWith(t, raidtest.Target(c.config, ""))
				_, err := m.createConfiguration(t.Context(), hardware.Call{Node: n})
				return kernel, err
			}
			kernel, err := run(false)
			want := strings.NewReplacer("1,", c.disks[0].Path+",", " 2", " "+c.disks[1].Path,
				"list 1", "list "+c.disks[0].Path).Replace(c.want)
			if (err == nil) != (c.want == "") || err != nil &&
				(typeOf(err) != "SoftwareRAIDError" || !strings.Contains(errorText(err), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
			for i, d := range c.disks {
				local, known := d.IsLocal()
				mayChange := c.want == "" && local && known == nil
				if changed := !bytes.Equal(before[i], head(t, d)); changed != mayChange {
					t.Errorf("%s: changed %t, want %t", d.Path, changed, mayChange)
				}
			}
			if c.want == "" && c.config != "" { // two of three disks
				if members := strings.Join(kernel.Checked, " "); strings.Contains(members, c.disks[1].Path) ||
					!strings.Contains(members, c.disks[0].Path) || !strings.Contains(members, c.disks[2].Path) {
					t.Errorf("got members %s, want those of the machine's disks", members)
				}
				return
			}
			if _, err := run(true); err != nil {
				t.Errorf("allowed: %v", err)
			}
			for i, d := range c.disks {
				if bytes.Equal(before[i], head(t, d)) {
					t.Errorf("allowed: %s was not changed", d.Path)
				}
			}
		})
	}
}

// head returns the start of a disk, which RAID steps change.
func head(t *testing.T, d block.Device) []byte {
	t.Helper()
	f, err := os.Open(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, mib)
	if _, err := f.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return data
}
