package softraid

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// mdadmMembers are the metadata that mdadm wrote to members of diskSize bytes, and their offsets.
var mdadmMembers = []struct {
	name string
	at   int64
}{
	{"raid1-0.90", diskSize - 64<<10},
	{"raid1-1.0", diskSize - 8<<10},
	{"raid5-1.1", 0},
	{"raid1-1.2", 4096},
	{"raid1-1.2-bitmap", 4096},
	{"raid0-1.2", 4096},
}

// checkMDADM checks what mdadm and wipefs find on a device: a member of an array, and its bitmap if it has one, or
// nothing.
func checkMDADM(t *testing.T, name, path string, isMember bool) {
	t.Helper()
	shell := func(command string) string { return testenv.Run(t, "sh", "-c", command+" "+path+" 2>&1 || true") }
	examined, bitmap := shell("mdadm --examine"), shell("mdadm --examine-bitmap")
	signatures := shell("wipefs --noheadings --output TYPE")
	if !isMember {
		if !strings.Contains(examined, "No md superblock detected on "+path) || strings.Contains(bitmap, "Bitmap :") ||
			strings.TrimSpace(signatures) != "" {
			t.Errorf("%s: mdadm shows\n%s%sand wipefs %q, want no array", name, examined, bitmap, signatures)
		}
		return
	}
	if !strings.Contains(examined, " - correct") || strings.TrimSpace(signatures) != "linux_raid_member" ||
		strings.Contains(bitmap, "Bitmap :") != strings.HasSuffix(name, "-bitmap") {
		t.Errorf("%s: mdadm shows\n%s%sand wipefs %q, want a member of an array", name, examined, bitmap, signatures)
	}
}

// Arrays that mdadm created are deleted, whatever the version of their superblocks, on disks and on partitions. Neither
// mdadm nor wipefs finds them afterwards, also if the same partitions are created again.
func TestDeleteConfigurationOfMDADM(t *testing.T) {
	testenv.Programs(t, "mdadm", "wipefs")
	var disks []block.Device
	for _, member := range mdadmMembers {
		d := raidtest.BlankDisk(t, diskSize)
		raidtest.Write(t, d.Path, member.at, testenv.Data(t, "md/"+member.name))
		checkMDADM(t, member.name, d.Path, true)
		disks = append(disks, d)
	}
	parts := raidtest.BlankDisk(t, int64(len(mdadmMembers)+1)*diskSize)
	table := slices.Repeat([]string{"size=24MiB"}, len(mdadmMembers))
	checkParts := func(isMember bool) {
		t.Helper()
		for i, member := range mdadmMembers {
			checkMDADM(t, member.name, block.PartitionPath(sysfs.Root{}, parts.Path, i+1), isMember)
		}
	}
	create := func() {
		t.Helper()
		testenv.GPT(t, parts.Path, table...)
		if err := partition.Sync(t.Context(), sysfs.Root{}, parts.Path); err != nil {
			t.Fatal(err)
		}
	}
	create()
	for i, member := range mdadmMembers {
		path := block.PartitionPath(sysfs.Root{}, parts.Path, i+1)
		raidtest.Write(t, path, member.at, testenv.Data(t, "md/"+member.name))
	}
	checkParts(true)
	m := onThisMachine(t, append(disks, parts)...)
	if _, err := m.deleteConfiguration(t.Context(), call{Node: nodeWith(t, `"properties": {}`)}); err != nil {
		t.Fatal(err)
	}
	for i, member := range mdadmMembers {
		checkMDADM(t, filepath.Base(disks[i].Path)+" "+member.name, disks[i].Path, false)
	}
	checkMDADM(t, "partitions", parts.Path, false)
	create()
	checkParts(false)
}
