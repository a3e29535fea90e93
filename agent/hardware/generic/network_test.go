package generic

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Erase steps leave disks that are reached over a network as they are, and name them in the log, the result and the
// evidence, unless the option allows erasing them.
//
// Parity: P6 (disks of a network)
func TestEraseNetworkDisks(t *testing.T) {
	for name, allowed := range map[string]bool{"left": false, "allowed": true} {
		t.Run(name, func(t *testing.T) {
			own, remote := loopDisk(t, partition.TypeLinux), loopDisk(t, partition.TypeLinux)
			remote.Network = "iscsi"
			m := onThisMachine(t, own, remote)
			m.o.Config.Update(func(c *config.Config) { c.EraseNetworkDisks = allowed })
			log := &bytes.Buffer{}
			m.o.Log = slog.New(slog.NewTextHandler(log, nil))
			const reason = "reached over a network (iscsi), and erase_network_disks is not set"
			for step, run := range erasing(m) {
				log.Reset()
				before := content(t, remote)
				result, err := run(t.Context(), hardware.Call{Node: nodeWith(t,
					`"driver_internal_info": {"agent_erase_devices_iterations": 0}`)})
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				reports := result.(map[string]any)
				got := reports[remote.Path].(diskReport)
				if allowed {
					if got.Erased[remote.Path].Technique == "" || len(got.Untouched) > 0 {
						t.Errorf("%s: got %+v, want the disk erased", step, got)
					}
					continue
				}
				if !bytes.Equal(before, content(t, remote)) {
					t.Errorf("%s: the disk was written to", step)
				}
				if got.Untouched[remote.Path] != reason || len(got.Erased) > 0 {
					t.Errorf("%s: got %+v, want untouched: %s", step, got, reason)
				}
				data, err := got.Evidence.Envelope.JSON()
				if err != nil {
					t.Fatal(err)
				}
				record := parsed(t, string(data)).Record
				if record.Outcome != evidence.NotErased || !strings.Contains(record.Reason, reason) {
					t.Errorf("%s: got evidence %s: %s, want not erased: %s", step, record.Outcome, record.Reason,
						reason)
				}
				if !strings.Contains(log.String(), `"device left untouched" device=`+remote.Path+` reason="`+reason) {
					t.Errorf("%s: got log %s, want %s", step, log, reason)
				}
				if report := reports[own.Path].(diskReport); report.Erased[own.Path].Technique == "" {
					t.Errorf("%s: got %+v, want the machine's own disk erased", step, report)
				}
			}
		})
	}
}

// Erase steps fail for a disk if it is not known whether it is reached over a network. They leave it as it is, and
// erase the others. If the option allows erasing disks of a network, it is erased.
func TestEraseUnknownNetwork(t *testing.T) {
	own, unknown := loopDisk(t, partition.TypeLinux), loopDisk(t, partition.TypeLinux)
	unknown.NetworkUnread = errors.New("read transport: file hangs")
	m := onThisMachine(t, own, unknown)
	call := hardware.Call{Node: nodeWith(t, `"driver_internal_info": {"agent_erase_devices_iterations": 0}`)}
	before := content(t, unknown)
	for step, run := range erasing(m) {
		_, err := run(t.Context(), call)
		want := "not known whether " + unknown.Path + " is reached over a network: read transport: file hangs"
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "; not erased") || !strings.Contains(err.Error(), "erased: "+own.Path) {
			t.Errorf("%s: got %v, want %s", step, err, want)
		}
		if !bytes.Equal(before, content(t, unknown)) {
			t.Errorf("%s: the disk was written to", step)
		}
	}
	m.o.Config.Update(func(c *config.Config) { c.EraseNetworkDisks = true })
	result, err := m.eraseMetadata(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if got := result.(map[string]any)[unknown.Path].(diskReport); got.Erased[unknown.Path].Technique == "" {
		t.Errorf("allowed: got %+v, want the disk erased", got)
	}
}

// A disk of a network that appears during a step is named, and is no error.
func TestNetworkDiskAppears(t *testing.T) {
	remote := block.Device{Name: "sdb", Path: "/dev/sdb", Type: "disk", Network: "fc", Size: 1 << 20}
	m := appearing(t, func() ([]block.Device, error) { return nil, nil },
		func() ([]block.Device, error) { return []block.Device{remote}, nil }, func(sysfs.Root) {})
	result, err := m.eraseMetadata(t.Context(), hardware.Call{})
	if err != nil {
		t.Fatal(err)
	}
	sameResult(t, result, map[string]diskReport{
		"/dev/sdb": untouched(remote, "reached over a network (fc), and erase_network_disks is not set"),
	})
}

// burnin_disk tests no disk of a network.
func TestBurninNetworkDisk(t *testing.T) {
	own := loopDisk(t, partition.TypeLinux)
	remote := block.Device{Name: "nvme9n1", Path: "/dev/nvme9n1", Type: "disk", Network: "nvme-tcp", Size: 1 << 20}
	m := onThisMachine(t, own, remote)
	result, err := m.burninDisk(t.Context(), hardware.Call{Node: nodeWith(t,
		`"driver_info": {"agent_burnin_fio_disk_runtime": 1}`)})
	if err != nil {
		t.Fatal(err)
	}
	got := result.(map[string]any)["/dev/nvme9n1"].(diskReport)
	want := "reached over a network (nvme-tcp), and erase_network_disks is not set"
	if got.Untouched[remote.Path] != want {
		t.Errorf("got %+v, want untouched: %s", got, want)
	}
}

// RAID steps use no disk of a network and delete no array on one, unless the option allows it. What cannot be done
// without it fails before the first write, and names these disks. A disk of which it is not known whether it is of this
// machine fails the step.
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
	blank := func(t *testing.T) block.Device { t.Helper(); return blankDisk(t, 3*gib) }
	unknown := blank(t)
	unknown.NetworkUnread = errors.New("read transport: file hangs")
	first, second := memberDisk(t, testenv.RAID{Name: "data", Level: 1}),
		memberDisk(t, testenv.RAID{Name: "data", Level: 1, Member: 1})
	third, fourth := memberDisk(t, testenv.RAID{Name: "san", Level: 1, UUID: "uuid-of-the-san-"}),
		memberDisk(t, testenv.RAID{Name: "san", Level: 1, Member: 1, UUID: "uuid-of-the-san-"})
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
			run := func(allowed bool) (*raidtest.Kernel, error) {
				m, kernel := onThisMachine(t, c.disks...), raidtest.NewKernel(t)
				m.kernel = kernel
				m.o.Config.Update(func(o *config.Config) { o.EraseNetworkDisks = allowed })
				if c.config == "" {
					_, err := m.deleteConfiguration(t.Context(), hardware.Call{Node: nodeWith(t, `"properties": {}`)})
					return kernel, err
				}
				_, err := m.createConfiguration(t.Context(), hardware.Call{Node: nodeWith(t, target(c.config, ""))})
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
