//go:build linux

package disks

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
)

const protectedSerial = "protected"

// protectedDisk is a disk of the node's skip list. It is large enough for a root disk, and has content at both ends
// and in between.
type protectedDisk struct {
	path   string
	blocks int64 // allocated blocks of the file: writing zeros or discarding would change them
}

var protectedAt = []int64{0, 1 << 30, 4<<30 - rig.MiB}

func newProtected(t *testing.T) protectedDisk {
	t.Helper()
	path := rig.File(t, protectedSerial, 4<<30, nil)
	for _, at := range protectedAt {
		rig.Patch(t, path, at, bytes.Repeat(rig.OldText, rig.MiB/len(rig.OldText)))
	}
	return protectedDisk{path, blocksOf(t, path)}
}

func (d protectedDisk) check(t *testing.T) {
	t.Helper()
	for _, at := range protectedAt {
		if !bytes.Equal(rig.Read(t, d.path, at, rig.MiB), bytes.Repeat(rig.OldText, rig.MiB/len(rig.OldText))) {
			t.Errorf("the protected disk has other content at %d", at)
		}
	}
	if got := blocksOf(t, d.path); got != d.blocks {
		t.Errorf("the protected disk takes %d blocks, want %d as before", got, d.blocks)
	}
}

func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks
}

// protected checks that no step erases the disk of the skip list: neither the earlier erasing of metadata and of
// devices nor erase_devices_express. It is not selected as the root disk either, even if it is the only one that is
// large enough, or the first that matches the hints.
//
// Parity: J4
func protected(t *testing.T, r *rig.Rig, kept protectedDisk, device, other string) {
	kept.check(t)
	if err := r.Node.Clean(rig.Soon(t), "deploy.erase_devices_express"); err != nil {
		t.Fatal(err)
	}
	kept.check(t)
	image := rig.MBRImage(t, "mbr", 24*rig.MiB)
	r.Images.File("mbr.raw", image)
	prepare := map[string]any{"image_info": r.RawInfo("mbr.raw", rig.SumAll(t, image))}
	r.Node.SetState(conductor.DeployWait) // without hints the node is looked up again, which other states do not allow
	r.SetHints(t, nil)
	record := r.Command(t, "standby.prepare_image", prepare)
	if counted, protects, _ := strings.Cut(record.Error.Details, "skip_block_devices protects"); record.Status !=
		conductor.Failed || record.Error.Type != "DeviceNotFound" ||
		strings.Contains(counted, filepath.Base(device)) || !strings.Contains(protects, device) {
		t.Errorf("without hints: got %s (%v), want a DeviceNotFound that names the protected disk as such",
			record.Status, record.Error)
	}
	r.SetHints(t, map[string]any{"name": "<or> " + device + " <or> /dev/vda"})
	got := r.Succeed(t, "standby.prepare_image", prepare)
	if want := fmt.Sprintf(`{"result":"prepare_image: image (mbr.raw) written to device /dev/vda root_uuid=0x%08x"}`,
		rig.MBRID); got != want {
		t.Errorf("with hints that fit both: got %s, want %s", got, want)
	}
	if got, want := rig.Sum(t, other, 0, rig.SizeOf(t, image)), rig.SumAll(t, image); got != want {
		t.Errorf("the other disk's SHA-256 is %s, want the image's, %s", got, want)
	}
	kept.check(t)
}
