package cleaning

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/internal/test/raidtest"
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
			own := raidtest.PartitionedDisk(t, partition.TypeLinux)
			remote := raidtest.PartitionedDisk(t, partition.TypeLinux)
			remote.Network = "iscsi"
			m := onThisMachine(t, own, remote)
			m.o.Config.Update(func(c *config.Config) { c.EraseNetworkDisks = allowed })
			log := &bytes.Buffer{}
			m.o.Log = slog.New(slog.NewTextHandler(log, nil))
			const reason = "reached over a network (iscsi), and erase_network_disks is not set"
			for step, run := range erasing(m) {
				log.Reset()
				before := content(t, remote)
				result, err := run(t.Context(), nodeWith(t,
					`"driver_internal_info": {"agent_erase_devices_iterations": 0}`))
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
	own, unknown := raidtest.PartitionedDisk(t, partition.TypeLinux), raidtest.PartitionedDisk(t, partition.TypeLinux)
	unknown.NetworkUnread = errors.New("read transport: file hangs")
	m := onThisMachine(t, own, unknown)
	n := nodeWith(t, `"driver_internal_info": {"agent_erase_devices_iterations": 0}`)
	before := content(t, unknown)
	for step, run := range erasing(m) {
		_, err := run(t.Context(), n)
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
	result, err := m.EraseMetadata(t.Context(), n)
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
	result, err := m.EraseMetadata(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameResult(t, result, map[string]diskReport{
		"/dev/sdb": untouched(remote, "reached over a network (fc), and erase_network_disks is not set"),
	})
}

// burnin_disk tests no disk of a network.
func TestBurninNetworkDisk(t *testing.T) {
	own := raidtest.PartitionedDisk(t, partition.TypeLinux)
	remote := block.Device{Name: "nvme9n1", Path: "/dev/nvme9n1", Type: "disk", Network: "nvme-tcp", Size: 1 << 20}
	m := onThisMachine(t, own, remote)
	result, err := burninDisk(t.Context(), t, m, nodeWith(t,
		`"driver_info": {"agent_burnin_fio_disk_runtime": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	got := result.(map[string]any)["/dev/nvme9n1"].(diskReport)
	want := "reached over a network (nvme-tcp), and erase_network_disks is not set"
	if got.Untouched[remote.Path] != want {
		t.Errorf("got %+v, want untouched: %s", got, want)
	}
}
