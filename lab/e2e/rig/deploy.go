//go:build linux

package rig

import (
	"encoding/json"
	"testing"

	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// Memory is the memory of a machine that deploys.
const Memory = 320 * MiB

// RawInfo returns the image_info of a raw image that r serves.
func (r *Rig) RawInfo(name, checksum string) map[string]any {
	return map[string]any{
		"id": name, "urls": []string{r.Images.URLFrom(Host, name)}, "disk_format": "raw", "stream_raw_images": true,
		"os_hash_algo": "sha256", "os_hash_value": checksum,
	}
}

// DiskStats counts a machine's requests that change a disk, and the bytes that it wrote.
type DiskStats struct {
	Writes   int64 `json:"wr_operations"`
	Written  int64 `json:"wr_bytes"`
	Discards int64 `json:"unmap_operations"`
	Flushes  int64 `json:"flush_operations"`
}

// DiskStats returns the counts of each disk of the machine so far.
func (r *Rig) DiskStats(t *testing.T) map[string]DiskStats {
	t.Helper()
	answer, err := r.Machine.QMP(Soon(t), "query-blockstats", nil)
	if err != nil {
		t.Fatal(err)
	}
	var disks []struct {
		Device string    `json:"qdev"`
		Stats  DiskStats `json:"stats"`
	}
	if err := json.Unmarshal(answer, &disks); err != nil {
		t.Fatal(err)
	}
	stats := map[string]DiskStats{}
	for _, d := range disks {
		stats[d.Device] = d.Stats
	}
	return stats
}

// Written returns the number of bytes that the machine has written to its disks.
func (r *Rig) Written(t *testing.T) (bytes int64) {
	t.Helper()
	for _, disk := range r.DiskStats(t) {
		bytes += disk.Written
	}
	return bytes
}

// PowerOff powers the machine off by a command.
func (r *Rig) PowerOff(t *testing.T) {
	if _, err := r.Node.Command(t.Context(), "standby.power_off", nil, false); err != nil {
		t.Fatal(err)
	}
	event, err := r.Machine.WaitEvent(Soon(t), "SHUTDOWN", 1)
	if err != nil {
		t.Fatal(err)
	}
	CheckFromGuest(t, event)
	if err := r.Machine.Wait(Soon(t)); err != nil {
		t.Error(err)
	}
}

// CheckFromGuest checks that the guest itself caused the event.
func CheckFromGuest(t *testing.T, e qemu.Event) {
	t.Helper()
	var data struct {
		Guest bool `json:"guest"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil || !data.Guest {
		t.Errorf("got event %s %s, want one that the guest asked for", e.Name, e.Data)
	}
}

// CheckGPT compares a disk with the GPT image that was deployed on it: the partitions with their content, and a table
// without errors according to sgdisk, so that its backup is at the end of the disk.
func CheckGPT(t *testing.T, image, disk string) {
	t.Helper()
	want, err := partition.Read(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	got, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	if got.GUID != want.GUID || len(got.Partitions) < len(want.Partitions) {
		t.Fatalf("got table %+v, want %+v", got, want)
	}
	for i, p := range want.Partitions {
		if got.Partitions[i] != p {
			t.Errorf("got partition %+v, want %+v", got.Partitions[i], p)
		}
		if got, want := Sum(t, disk, p.Start, p.Size), Sum(t, image, p.Start, p.Size); got != want {
			t.Errorf("partition %d: got SHA-256 %s, want %s", p.Number, got, want)
		}
	}
	SoundGPT(t, disk)
}

// DriveUUID is the UUID in config drives of the tests.
const DriveUUID = "1b0c7c1e-77f5-4f8e-9f0e-6e1a3c1d2b4a"

// DeployWithDrive deploys a served image with a config drive onto the disk with the serial number.
func (r *Rig) DeployWithDrive(t *testing.T, serial, name, checksum, drive string) *conductor.Record {
	t.Helper()
	r.SetHints(t, map[string]any{"serial": serial})
	params := map[string]any{"image_info": r.RawInfo(name, checksum), "configdrive": drive}
	return r.Command(t, "standby.prepare_image", params)
}
