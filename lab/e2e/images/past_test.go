//go:build linux

package images

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
)

// usedDisk creates a used disk: it boots, its second partition belonged to a volume group, and the whole disk to an
// array. wipefs and blkid find all of these.
func usedDisk(t *testing.T, size int64) string {
	t.Helper()
	path := rig.BootableDisk(t, "OLD SYSTEM", size)
	array := make([]byte, 4096) // superblock of version 0.90, 64 KiB before the end
	binary.LittleEndian.PutUint32(array, 0xa92b4efc)
	binary.LittleEndian.PutUint32(array[8:], 90)
	rig.Patch(t, path, size-64<<10, array)
	rig.Patch(t, path, 13*rig.MiB, append(make([]byte, 512), physicalVolume()...))
	if got := rig.Signatures(t, path); !strings.Contains(got, "linux_raid_member") || !strings.Contains(got, "gpt") {
		t.Fatalf("signatures of the used disk: got %q, want an array and a GPT", got)
	}
	second := []string{"-p", "-O", "13631488", "-S", "10485760", "-s", "TYPE", "-o", "value", path}
	if got := testenv.Run(t, "blkid", second...); !strings.Contains(got, "LVM2_member") {
		t.Fatalf("partition 2 of the used disk: got %q, want a physical volume", got)
	}
	return path
}

// physicalVolume returns the label of an LVM2 physical volume, which is in its second sector.
func physicalVolume() []byte {
	label := make([]byte, 512)
	copy(label, "LABELONE")
	binary.LittleEndian.PutUint64(label[8:], 1)
	binary.LittleEndian.PutUint32(label[20:], 32)
	copy(label[24:], "LVM2 001"+strings.Repeat("p", 32))
	const start = 0xf597a6cf
	binary.LittleEndian.PutUint32(label[16:], ^crc32.Update(^uint32(start), crc32.IEEETable, label[20:]))
	return label
}
