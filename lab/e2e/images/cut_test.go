//go:build linux

package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/imageserver"
	"ironroot/lab/qemu"
)

// TestHalfWritten deploys onto used disks that record every request. The power can be cut after any request: the
// disk's content at this point, rebuilt from the record, must not boot unless it is the whole image. A real disk can
// reorder the writes between two flushes, so each stage must be flushed before the next one is written. The firmware
// tries to boot the disk's content at every tenth of the image, and one deployment ends by killing the machine. The
// machine also has disks that fail.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "qemu-img")
	const size = 56 * rig.MiB // a request has at most 4 MiB, less than a tenth
	image := rig.BootableDisk(t, "NEW SYSTEM", size)
	qcow2 := filepath.Join(t.TempDir(), "image.qcow2")
	// -S 0 stores zeros as data, so that the whole image is written in the file's order.
	testenv.Run(t, "qemu-img", "convert", "-S", "0", "-f", "raw", "-O", "qcow2", image, qcow2)
	// The backup GPT of an image as large as the disk is where firmware searches for it, so it must be written last.
	disks := []*recorded{
		{name: "raw", file: usedDisk(t, size), served: image},
		{name: "qcow2", file: usedDisk(t, size+8*rig.MiB), served: qcow2},
		{name: "killed", file: usedDisk(t, size), served: image},
	}
	s := rig.Setup{Machine: qemu.Config{Memory: rig.Memory}}
	for _, d := range disks {
		d.before, d.log = rig.Read(t, d.file, 0, rig.SizeOf(t, d.file)), filepath.Join(t.TempDir(), "log")
		s.Machine.Disks = append(s.Machine.Disks, qemu.Disk{File: d.file, Serial: d.name, Log: d.log})
	}
	failing := failures(t, 'a'+byte(len(disks)))
	for _, f := range failing {
		s.Machine.Disks = append(s.Machine.Disks, f.disk)
	}
	r := rig.Start(t, s)
	for _, d := range disks {
		r.Images.File(d.name, d.served)
	}
	r.WaitAgent(t)
	for _, d := range disks[:2] {
		r.SetHints(t, map[string]any{"serial": d.name})
		r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": imageInfo(t, r, d)})
	}
	t.Run("disk errors", func(t *testing.T) { diskErrors(t, r, failing) })
	kill(t, r, disks[2], size/2)
	content := rig.Read(t, image, 0, size)
	dir := t.TempDir()
	var cut []string
	for _, d := range disks[:2] {
		t.Run(d.name, func(t *testing.T) { cut = append(cut, d.simulate(t, dir, content)...) })
	}
	cut = append(cut, disks[2].file)
	for _, path := range cut {
		if got := rig.Signatures(t, path); got != "" {
			t.Errorf("%s: wipefs finds %q, want nothing", filepath.Base(path), got)
		}
	}
	// Restarting the machine for each disk is slow, so only the disks of one image are tried.
	t.Run("BIOS", func(t *testing.T) { biosBoots(t, slices.Concat(cut[:tenths+1], cut[len(cut)-1:]), disks[0].file) })
	t.Run("UEFI", func(t *testing.T) { uefiBoots(t, cut, disks[1].file) })
}

// tenths is the number of parts of the image after which the disk's content is saved. It is also saved at the start.
const tenths = 10

// recorded is a disk whose requests are recorded, and the image for it.
type recorded struct {
	name, file, served, log string
	before                  []byte
}

func imageInfo(t *testing.T, r *rig.Rig, d *recorded) map[string]any {
	info := r.RawInfo(d.name, rig.SumAll(t, d.served))
	if d.name == "qcow2" {
		info["disk_format"] = "qcow2"
	}
	return info
}

// kill ends QEMU when the guest has written the given number of bytes of an image that stalls.
func kill(t *testing.T, r *rig.Rig, d *recorded, at int64) {
	t.Helper()
	r.SetHints(t, map[string]any{"serial": d.name})
	r.Images.Fault(d.name, imageserver.Fault{Stall: rig.SizeOf(t, d.served) * 3 / 4})
	info := imageInfo(t, r, d)
	go func() {
		// The machine is killed before it replies.
		_, _ = r.Node.Command(t.Context(), "standby.prepare_image", map[string]any{"image_info": info}, true)
	}()
	ctx, before := rig.Soon(t), r.Written(t)
	for r.Written(t) < before+at {
		select { // QEMU's threshold event could be requested too late
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%v: %d bytes are written, want %d", context.Cause(ctx), r.Written(t)-before, at)
		}
	}
	if err := r.Machine.Stop(); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(rig.Read(t, d.file, rig.MiB, rig.MiB), d.before[rig.MiB:2*rig.MiB]) {
		t.Error("the machine was killed before the disk was written to")
	}
}

// stage is a stage of writing an image.
type stage int

const (
	wiping  stage = iota // zeros at both ends of the disk
	filling              // everything except the first and the last MiB of the disk
	heading              // these two except the first sector
	done                 // the first sector, then the relocated backup GPT
)

// replay is a disk's content rebuilt from its record.
type replay struct {
	disk, image []byte
	stage       stage
	flushed     bool // since the last write
}

// middle returns the offset at which the last MiB of the disk starts or the image ends.
func (r *replay) middle() int { return min(len(r.image), len(r.disk)-rig.MiB) }

// next returns the stage to which a write belongs, or an error if the write comes too early.
func (r *replay) next(w qemu.Write) (stage, error) {
	first, last := w.Offset < rig.MiB, w.Offset >= int64(len(r.disk)-rig.MiB)
	switch r.stage {
	case wiping:
		if (first || last) && rig.AllZero(w.Data) {
			return wiping, nil
		}
		if first || !r.flushed || !rig.AllZero(r.disk[:rig.MiB]) || !rig.AllZero(r.disk[len(r.disk)-rig.MiB:]) {
			return 0, errors.New("content is written before the ends of the disk were zeroed and flushed")
		}
		return filling, nil
	case filling:
		if !first && !last || last && rig.AllZero(w.Data) {
			return filling, nil
		}
		if end := r.middle(); w.Offset == 0 || !r.flushed || !bytes.Equal(r.disk[rig.MiB:end], r.image[rig.MiB:end]) {
			return 0, errors.New("an end of the disk is written before all that lies between was written and flushed")
		}
		return heading, nil
	case heading:
		if first && w.Offset > 0 || last {
			return heading, nil
		}
		if !first || len(w.Data) > 4096 || !r.flushed || !bytes.Equal(r.disk[4096:len(r.image)], r.image[4096:]) {
			return 0, errors.New("the first sector is written before the rest was written and flushed")
		}
	}
	return done, nil
}

// simulate replays the recorded requests and checks their order. It returns files in dir with the disk's content at
// every tenth.
func (d *recorded) simulate(t *testing.T, dir string, image []byte) []string {
	r := &replay{disk: bytes.Clone(d.before), image: image, flushed: true}
	var requests, written int
	var pictures []string
	for w, err := range qemu.WriteLog(d.log) {
		if err != nil {
			t.Fatal(err)
		}
		if requests++; w.Data == nil {
			r.flushed = true
			continue
		}
		if r.stage, err = r.next(w); err != nil {
			t.Fatalf("request %d, %d bytes at %d: %v", requests, len(w.Data), w.Offset, err)
		}
		r.flushed = false
		copy(r.disk[w.Offset:], w.Data)
		if r.stage != filling {
			continue
		}
		if written += len(w.Data); written*tenths >= len(pictures)*(r.middle()-rig.MiB) {
			pictures = append(pictures,
				rig.DiskFile(t, filepath.Join(dir, fmt.Sprintf("%s %d", d.name, len(pictures))), r.disk))
		}
	}
	t.Logf("%d requests", requests)
	if !r.flushed || r.stage != done || !bytes.Equal(r.disk, rig.Read(t, d.file, 0, int64(len(r.disk)))) {
		t.Errorf("the record ends at stage %d and flushed is %v, or it does not lead to what is on the disk",
			r.stage, r.flushed)
	}
	if !bytes.Equal(r.disk[4096:len(image)-rig.MiB], image[4096:len(image)-rig.MiB]) {
		t.Error("the disk does not hold the image")
	}
	if len(pictures) != tenths+1 {
		t.Errorf("got the disk at %d places, want %d", len(pictures), tenths+1)
	}
	return pictures
}

// biosBoots checks that the disks in cut do not boot and that the disk whole does.
func biosBoots(t *testing.T, cut []string, whole string) {
	disks := append(slices.Clone(cut), whole)
	m := rig.BootFrom(t, disks, qemu.Config{Memory: 64 * rig.MiB})
	verdict := regexp.MustCompile(`No bootable device|(?:OLD|NEW) SYSTEM`)
	var at int64
	for i, path := range disks {
		found, err := m.Console().FollowFrom(rig.Soon(t), at, verdict)
		if err != nil {
			t.Fatal(err)
		}
		want := "No bootable device"
		if i == len(cut) {
			want = "NEW SYSTEM"
		}
		if found.Groups[0] != want {
			t.Errorf("%s: got %q, want %q", filepath.Base(path), found.Groups[0], want)
		}
		if i == len(cut) {
			return
		}
		at = m.Console().Mark()
		if err := m.SetBoot(t.Context(), fmt.Sprintf("disk%d", i), -1); err != nil {
			t.Fatal(err)
		}
		if err := m.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// uefiBoots checks that the firmware, which tries the disks in order, boots only the last one.
func uefiBoots(t *testing.T, cut []string, whole string) {
	m := rig.BootFrom(t, append(slices.Clone(cut), whole), qemu.Config{Memory: 256 * rig.MiB, Firmware: qemu.UEFI})
	found, err := m.Console().Follow(rig.Soon(t), regexp.MustCompile(`BdsDxe: starting Boot(\w{4}) "[^"]*" from`))
	if err != nil {
		t.Fatal(err)
	}
	failed := regexp.MustCompile(`BdsDxe: failed to load Boot\w{4}`).FindAllString(m.Console().String(), -1)
	if got, want := found.Groups[1], fmt.Sprintf("%04X", len(cut)+1); got != want || len(failed) != len(cut) {
		t.Errorf("the firmware starts entry %s after %d that it cannot, want %s after %d",
			got, len(failed), want, len(cut))
	}
}
