//go:build linux

package images

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// failure is a disk that fails, and the expected error.
type failure struct {
	name, image string // image is the name under which it is served
	device      string
	disk        qemu.Disk
	op          string
	at          int64 // -1 if the error has no offset
}

const (
	failingImage = 12 * rig.MiB
	failingDisk  = 14 * rig.MiB
	writerGrain  = 4 * rig.MiB // size of one write; errors name its first byte
)

// failures returns disks, starting with the device vd<first>, that fail at each tenth of an image, at their end, and
// at each of the flushes: after the zeros, after everything but the first MiB, after this MiB but for its first
// sector, and after the first sector.
func failures(t *testing.T, first byte) []failure {
	t.Helper()
	var list []failure
	add := func(name, op string, at int64, fault qemu.Fault) {
		format := []string{"raw", "qcow2"}[len(list)%2]
		list = append(list, failure{
			name: format + ", " + name, image: "failing." + format, op: op, at: at,
			device: fmt.Sprintf("/dev/vd%c", int(first)+len(list)),
			disk: qemu.Disk{
				File: rig.File(t, "failing", failingDisk, rig.OldContent{}), Serial: fmt.Sprintf("failing%d",
					len(list)),
				Faults: []qemu.Fault{fault},
			},
		})
	}
	for tenth := range int64(10) {
		at, op := failingImage*tenth/10+failingImage/20, "write"
		if at < rig.MiB {
			op = "zero"
		}
		add(fmt.Sprintf("tenth %d", tenth), op, at, qemu.Fault{Type: "write", Offset: at})
	}
	add("end of the disk", "zero", failingDisk-rig.MiB/2, qemu.Fault{Type: "write", Offset: failingDisk - rig.MiB/2})
	for n := range 4 {
		add(fmt.Sprintf("flush %d", n+1), "sync", -1, qemu.Fault{Type: "flush", Offset: -1, After: n})
	}
	return list
}

// diskErrors deploys onto each failing disk. The error names the disk, the operation and the offset, and the disk
// does not boot.
func diskErrors(t *testing.T, r *rig.Rig, list []failure) {
	raw, qcow2 := rig.MBRImage(t, "failing.raw", failingImage), filepath.Join(t.TempDir(), "failing.qcow2")
	testenv.Run(t, "qemu-img", "convert", "-S", "0", "-f", "raw", "-O", "qcow2", raw, qcow2)
	r.Images.File("failing.raw", raw)
	r.Images.File("failing.qcow2", qcow2)
	infos := map[string]map[string]any{"failing.raw": r.RawInfo("failing.raw", rig.SumAll(t, raw))}
	infos["failing.qcow2"] = r.RawInfo("failing.qcow2", rig.SumAll(t, qcow2))
	infos["failing.qcow2"]["disk_format"] = "qcow2"
	for _, f := range list {
		t.Run(f.name, func(t *testing.T) {
			r.SetHints(t, map[string]any{"serial": f.disk.Serial})
			record := r.Command(t, "standby.prepare_image", map[string]any{"image_info": infos[f.image]})
			if record.Status != conductor.Failed || record.Error.Type != "ImageWriteError" {
				t.Fatalf("got %s (%v), want an ImageWriteError", record.Status, record.Error)
			}
			f.check(t, record.Error.Details)
			// If a sector of the first MiB itself fails, the neighbouring sectors stay unchanged.
			if f.at >= 0 && f.at < rig.MiB {
				if !rig.AllZero(rig.Read(t, f.disk.File, 0, 4096)) {
					t.Error("the disk has a first sector, want zeros")
				}
			} else if !zero(t, f.disk.File) {
				t.Error("the first MiB of the disk is not zeros")
			}
		})
	}
}

// check searches the details of an error for operation, device and offset.
func (f *failure) check(t *testing.T, details string) {
	t.Helper()
	found := regexp.MustCompile(f.op + " " + f.device +
		`(?: at byte (\d+))?: input/output error`).FindStringSubmatch(details)
	if found == nil {
		t.Fatalf("got details %q, want them to name %s %s and an input/output error", details, f.op, f.device)
	}
	if f.at < 0 {
		return
	}
	if at, err := strconv.ParseInt(found[1], 10, 64); err != nil || at > f.at || at <= f.at-writerGrain {
		t.Errorf("got details %q, want them to name byte %d or one at most %d bytes before", details, f.at, writerGrain)
	}
}
