//go:build linux

package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// TestMultipath deploys onto a disk with two paths, of which first one and then both are lost. The machine also has a
// disk with one path.
func TestMultipath(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.Programs(t, "sgdisk", "blkid", "e2fsck", "fsck.vfat", "mke2fs", "isoinfo", "wipefs", "mtype")
	disk, other := rig.File(t, "twice", 5<<30, nil), rig.File(t, "once", 64*rig.MiB, rig.OldContent{})
	testenv.Run(t, "sgdisk", "-n", "1:1M:+8M", "-n", "3:0:+8M", disk) // existing partitions
	r := rig.Start(t, rig.Setup{Machine: qemu.Config{Firmware: qemu.UEFI, Memory: rig.Memory, Disks: []qemu.Disk{
		{Bus: qemu.SCSI, File: disk, Serial: "twice", WWN: 0x5000c500a1b2c3d4, Paths: 2},
		{Bus: qemu.SCSI, File: other, Serial: "once", WWN: 0x5000c500a1b2c3d5},
	}}})
	r.WaitAgent(t)
	var place string
	t.Run("inventory", func(t *testing.T) { place = oneDisk(t, r) })
	image := gptImage(t, "gpt.raw", 24*rig.MiB)
	r.Images.File("gpt.raw", image)
	t.Run("whole disk", func(t *testing.T) { overPaths(t, r, image, r.Images.URLFrom(rig.Host, "gpt.raw"), disk) })
	const uuid = "11111111-aaaa-4bbb-8ccc-dddddddddddd"
	root := rootImage(t, uuid)
	addLoader(t, root)
	r.Images.File("root.raw", root)
	t.Run("partition image", func(t *testing.T) { uefiLayout(t, r, root, disk, uuid) })
	t.Run("boot loader", func(t *testing.T) { loaderOnMap(t, r, disk, uuid) })
	t.Run("sync", func(t *testing.T) { flushPath(t, r) })
	t.Run("metadata", func(t *testing.T) { erasePartitions(t, r, disk) })
	var gone string
	t.Run("a path goes", func(t *testing.T) { gone = losePath(t, r, image, disk) })
	t.Run("it comes back, the other goes", func(t *testing.T) {
		regainPath(t, r, gone, place)
		losePath(t, r, image, disk)
	})
	t.Run("both are gone", func(t *testing.T) { noPath(t, r, gone, image) })
}

// oneDisk checks that the inventory lists the map instead of its paths, with the paths' attributes. It returns the
// place of the path in use.
//
// Parity: F11
func oneDisk(t *testing.T, r *rig.Rig) (place string) {
	type found struct {
		Name, Serial, WWN, Model string
		Size                     int64
		Place                    string `json:"by_path"`
	}
	var inventory struct{ Disks []found }
	if err := json.Unmarshal([]byte(r.Succeed(t, "poll.get_hardware_info", nil)), &inventory); err != nil {
		t.Fatal(err)
	}
	want := []found{
		{"", "once", "0x5000c500a1b2c3d5", "QEMU HARDDISK", 64 * rig.MiB, ""},
		{"/dev/dm-0", "twice", "0x5000c500a1b2c3d4", "QEMU HARDDISK", 5 << 30, ""},
	}
	for i := range inventory.Disks {
		if inventory.Disks[i].Name == "/dev/dm-0" {
			place = inventory.Disks[i].Place
		}
		inventory.Disks[i].Place = ""
		if strings.HasPrefix(inventory.Disks[i].Name, "/dev/sd") {
			inventory.Disks[i].Name = "" // the kernel determines the order of controllers
		}
	}
	if diff := cmp.Diff(want, inventory.Disks); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	console := rig.WaitConsole(t, r.Machine, `paths to one disk are joined device=/dev/dm-0`)
	if strings.Contains(console, "partitions of a ") {
		t.Error("the paths still have their partitions, or the map has none")
	}
	return place
}

// overPaths deploys a whole-disk image with a config drive, for which a partition is added.
func overPaths(t *testing.T, r *rig.Rig, image, url, disk string) {
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": rig.DriveUUID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	info := r.RawInfo("gpt.raw", rig.SumAll(t, image))
	info["urls"] = []string{url}
	got := r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": info, "configdrive": drive})
	if !strings.Contains(got, "written to device /dev/dm-0 ") {
		t.Errorf("got %s, want the image to be on the map", got)
	}
	if out := testenv.Run(t, "sgdisk", "-v", disk); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk finds problems:\n%s", out)
	}
	if got, want := rig.Sum(t, disk, rig.MiB, 22*rig.MiB), rig.Sum(t, image, rig.MiB, 22*rig.MiB); got != want {
		t.Errorf("partitions: got SHA-256 %s, want the image's, %s", got, want)
	}
	p := lastPartition(t, disk, 3)
	parts := partitions(t, disk)
	if got, want := tags(t, parts(p.Number), "TYPE", "LABEL"), "iso9660 config-2"; got != want {
		t.Errorf("config drive: got %q, want %q", got, want)
	}
}

// addLoader adds a loader to a root file system.
func addLoader(t *testing.T, image string) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(testenv.Loop(t, image, 512), dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	err := os.MkdirAll(filepath.Join(dir, "boot/efi/EFI/BOOT"), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "boot/efi/EFI/BOOT/BOOTX64.EFI"), []byte("loader"), 0o600)
	}
	if err = errors.Join(err, unix.Unmount(dir, 0)); err != nil {
		t.Fatal(err)
	}
}

// loaderOnMap checks that partitions of a map are mounted, and that the root's loaders are copied to the ESP.
func loaderOnMap(t *testing.T, r *rig.Rig, disk, rootUUID string) {
	parts := partitions(t, disk)
	r.Succeed(t, "image.install_bootloader", map[string]any{
		"root_uuid": rootUUID, "efi_system_part_uuid": tags(t, parts(1), "UUID"), "prep_boot_part_uuid": nil,
		"target_boot_mode": "uefi",
	})
	got := testenv.Run(t, "mtype", "-i", fmt.Sprintf("%s@@%d", disk, rig.MiB), "::EFI/BOOT/BOOTX64.EFI")
	if got != "loader" {
		t.Errorf("got loader %q on the ESP", got)
	}
}

// flushPath checks that flushes reach the disk of the map.
func flushPath(t *testing.T, r *rig.Rig) {
	flushes := func() (n int64) {
		for _, counts := range r.DiskStats(t) {
			n += counts.Flushes
		}
		return n
	}
	before := flushes()
	r.Succeed(t, "standby.sync", nil)
	if after := flushes(); after <= before {
		t.Errorf("got %d flushes after the command, %d before", after, before)
	}
}

// erasePartitions checks that no signature remains on the map and its partitions, which keep it in use.
func erasePartitions(t *testing.T, r *rig.Rig, disk string) {
	lastPartition(t, disk, 5)
	record := r.Command(t, "clean.execute_clean_step", map[string]any{
		"step": map[string]any{"step": "erase_devices_metadata", "interface": "deploy"},
		"node": map[string]any{"uuid": r.Node.UUID(), "driver_internal_info": map[string]any{}}, "ports": []any{},
	})
	if record.Status != conductor.Succeeded {
		t.Fatal(record.Error)
	}
	if out := testenv.Run(t, "wipefs", "-n", disk); out != "" {
		t.Errorf("wipefs finds\n%s", out)
	}
}

// losePath removes the disk from the controller in use after half of the image was sent, and returns the removed
// device.
func losePath(t *testing.T, r *rig.Rig, image, disk string) (used string) {
	before := r.DiskStats(t)
	used, spare := "disk0", "disk0path1"
	if before[used].Writes < before[spare].Writes {
		used, spare = spare, used
	}
	var once sync.Once
	pull := func() { unplug(t, r, used) }
	address, stop := serve(t, r, func(w http.ResponseWriter, q *http.Request) {
		f, err := os.Open(image)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		http.ServeContent(w, q, "", time.Time{},
			&watched{ReadSeeker: f, at: 12 * rig.MiB, reached: func() { once.Do(pull) }})
	})
	defer stop()
	overPaths(t, r, image, "http://"+address+"/gpt.raw", disk)
	after := r.DiskStats(t)
	if _, there := after[used]; there || after[spare].Writes <= before[spare].Writes {
		t.Errorf("got writes %v, before %v: %s was to go, and %s to be written to", after, before, used, spare)
	}
	return used
}

// unplug removes a device and waits until the guest has released it.
func unplug(t *testing.T, r *rig.Rig, device string) {
	if _, err := r.Machine.QMP(t.Context(), "device_del", map[string]any{"id": device}); err != nil {
		t.Error(err)
		return
	}
	r.Unplugged++ // the machine's events include events of earlier devices
	if _, err := r.Machine.WaitEvent(rig.Soon(t), "DEVICE_DELETED", r.Unplugged); err != nil {
		t.Error(err)
	}
}

// noPath checks that errors of the last path are reported, without waiting for a path to return.
func noPath(t *testing.T, r *rig.Rig, last, image string) {
	r.SetHints(t, map[string]any{"wwn": "0x5000c500a1b2c3d4"})
	unplug(t, r, last)
	record := r.Command(t, "standby.prepare_image",
		map[string]any{"image_info": r.RawInfo("gpt.raw", rig.SumAll(t, image))})
	if record.Status != conductor.Failed || record.Error.Type != "ImageWriteError" ||
		!strings.Contains(record.Error.Details, "/dev/dm-0") {
		t.Errorf("got %s (%v), want an ImageWriteError for the map", record.Status, record.Error)
	}
}

// regainPath plugs the disk in again at the same place. As soon as it is a path of the map, the map has this place.
func regainPath(t *testing.T, r *rig.Rig, gone, place string) {
	bus := map[string]string{"disk0": "scsi.0", "disk0path1": "scsi0path1.0"}[gone]
	if _, err := r.Machine.QMP(t.Context(), "device_add", map[string]any{
		"driver": "scsi-hd", "id": gone, "bus": bus, "scsi-id": 0, "drive": "image0", "share-rw": true,
		"serial": "twice", "wwn": 0x5000c500a1b2c3d4,
	}); err != nil {
		t.Fatal(err)
	}
	r.SetHints(t, map[string]any{"by_path": place})
}

// watched calls a function when the given number of bytes was read.
type watched struct {
	io.ReadSeeker
	at, done int64
	reached  func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadSeeker.Read(p)
	if w.done += int64(n); w.done >= w.at {
		w.reached()
	}
	return n, err
}
