package cleaning

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/partition"
)

// A preview tells what erase_devices does to each disk, with the node's settings, and changes none.
func TestPreviewErase(t *testing.T) {
	plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
	shared := raidtest.PartitionedDisk(t, "37AFFC90-EF7D-4E96-91C3-2D7AE055B174")
	skipped := raidtest.PartitionedDisk(t, partition.TypeLinux)
	remote := block.Device{Name: "sdn", Path: "/dev/sdn", Type: "disk", Network: "iscsi"}
	unknown := block.Device{Name: "sdu", Path: "/dev/sdu", Type: "disk", NetworkUnread: errors.New("broken")}
	disks := []block.Device{plain, shared, skipped, remote, unknown}
	var before [][]byte
	for _, d := range disks[:3] {
		before = append(before, content(t, d))
	}
	m := onThisMachine(t, disks...)
	var given erase.Options
	ask := fake(m).thisMachine.Decide
	fake(m).decide = func(ctx context.Context, d block.Device, o erase.Options) (erase.Report, error) {
		given = o
		return ask(ctx, d, o)
	}
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": "`+skipped.Serial+`"}]},
		"driver_internal_info": {"agent_enable_nvme_secure_erase": false, "agent_erase_devices_iterations": 3}`)
	list, err := m.PreviewErase(t.Context(), n)
	if err != nil || len(list) != len(disks) {
		t.Fatalf("got %d previews and %v, want %d", len(list), err, len(disks))
	}
	for i, want := range []Decision{
		{Disk: plain, Untouched: "the step ends before the first write"},
		{Disk: shared, Err: erase.ErrProtected},
		{Disk: skipped, Untouched: "named by skip_block_devices"},
		{Disk: remote, Untouched: "reached over a network (iscsi)"},
		{Disk: unknown, Err: unknown.NetworkUnread},
	} {
		got := list[i]
		if got.Disk.Path != want.Disk.Path || got.Report.String() != want.Report.String() ||
			!errors.Is(got.Err, want.Err) || (got.Untouched == "") != (want.Untouched == "") ||
			!strings.HasPrefix(got.Untouched, want.Untouched) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if given.NVMe || !given.ATA || given.Iterations != 3 {
		t.Errorf("got options %+v, want those of the node", given)
	}
	for i, d := range disks[:3] {
		if !bytes.Equal(content(t, d), before[i]) {
			t.Errorf("%s was written to", d.Path)
		}
	}

	// Without the guard, and with the permission to erase disks of a network, these are asked, too.
	m.o.Config.Update(func(c *config.Config) { c.GuardSpecialFilesystems, c.EraseNetworkDisks = false, true })
	list, err = m.PreviewErase(t.Context(), nil)
	if err != nil || list[1].Report.Technique != erase.Overwrite || list[2].Report.Technique != erase.Overwrite ||
		list[3].Untouched != "" || list[3].Err == nil {
		t.Errorf("without protection: got %+v and %v", list, err)
	}
}

// Disks that cannot be described, or that the kernel cannot use, are an error; the others are described.
func TestPreviewEraseIncomplete(t *testing.T) {
	plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, plain)
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
		return []block.Device{plain}, block.ErrUnreadable
	})
	if list, err := m.PreviewErase(t.Context(), nil); len(list) != 1 || !errors.Is(err, block.ErrUnreadable) {
		t.Errorf("got %v and %v, want the disk that can be read and %v", list, err, block.ErrUnreadable)
	}
	broken := errors.New("broken")
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) { return nil, broken })
	if list, err := m.PreviewErase(t.Context(), nil); list != nil || !errors.Is(err, broken) {
		t.Errorf("got %v and %v, want %v", list, err, broken)
	}
	n := nodeWith(t, `"properties": {"skip_block_devices": "x"}`)
	if _, err := m.PreviewErase(t.Context(), n); err == nil {
		t.Error("an invalid skip_block_devices is not an error")
	}
}

// A preview has the errors with which the step fails: the refusal of an erase, and a protected name that cannot be
// checked, because a disk cannot be described or drivers are still being loaded.
func TestPreviewErrors(t *testing.T) {
	broken := errors.New("broken")
	plain := raidtest.PartitionedDisk(t, partition.TypeLinux)
	m := onThisMachine(t, plain)
	fake(m).decide = func(context.Context, block.Device, erase.Options) (erase.Report, error) {
		return erase.Report{Technique: erase.Overwrite}, broken
	}
	list, err := m.PreviewErase(t.Context(), nil)
	if err != nil || !errors.Is(list[0].Err, broken) || list[0].Report.Technique != "" {
		t.Errorf("refused: got %+v and %v, want the refusal", list, err)
	}
	member := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	for name, change := range map[string]func(m *Steps){
		"disk not described": func(m *Steps) {
			m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
				return []block.Device{member}, fmt.Errorf("%w: sdx", block.ErrUnreadable)
			})
		},
		"drivers being loaded": func(m *Steps) { m.o.Settled = make(chan struct{}) },
	} {
		m := onThisMachine(t, member)
		change(m)
		list, err := m.PreviewErase(t.Context(), n)
		if !errors.Is(err, block.ErrUnreadable) || len(list) != 1 ||
			!strings.Contains(errorText(list[0].Err), "its name cannot be checked") {
			t.Errorf("%s: got %+v and %v, want an error of the disk, and of the list", name, list, err)
		}
	}
}
