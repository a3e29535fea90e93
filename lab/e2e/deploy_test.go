//go:build linux

package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

const (
	memory   = 320 * mib
	bigImage = 384 * mib // more than the machine's memory
	// badByte is the offset at which the failing disk fails.
	badByte = 20 * mib
)

// rawInfo returns the image_info of a raw image that r serves.
func (r *rig) rawInfo(name, checksum string) map[string]any {
	return map[string]any{
		"id": name, "urls": []string{r.images.URLFrom(host, name)}, "disk_format": "raw", "stream_raw_images": true,
		"os_hash_algo": "sha256", "os_hash_value": checksum,
	}
}

// TestDeploy deploys on one machine with little memory and three disks: the large one is the default root disk, the
// others are selected by hints.
//
// Parity: R14, A16
func TestDeploy(t *testing.T) {
	t.Parallel()
	large := file(t, "large", 5<<30, nil)
	small := file(t, "small", 64*mib, old{})
	failing := file(t, "failing", 64*mib, old{})
	r := start(t, setup{
		append: "ipa-image-download-connection-retries=1 ipa-image-download-connection-retry-interval=1 " +
			"ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-progress-interval=3 ironroot.shell=1" +
			plantedParameters(),
		machine: qemu.Config{Memory: memory, Disks: []qemu.Disk{
			{File: large, Serial: "large"},
			{File: small, Serial: "small"},
			{File: failing, Serial: "failing", Faults: []qemu.Fault{{Type: "write", Offset: badByte}}},
		}},
	})
	r.waitAgent(t)
	t.Run("certificate", r.generatedCertificate)
	image := mbrImage(t, "mbr", 24*mib)
	r.images.File("mbr.raw", image)
	t.Run("whole disk", func(t *testing.T) { r.mbr(t, image, large) })
	t.Run("boot loader", r.noBootloader)
	t.Run("sync", r.sync)
	t.Run("qcow2", func(t *testing.T) { r.qcow2(t, image, small) })
	t.Run("checksums", func(t *testing.T) { r.checksums(t, small) })
	t.Run("larger than memory", func(t *testing.T) { r.big(t, large) })
	t.Run("progress", func(t *testing.T) { r.writeProgress(t, small) })
	t.Run("bad input", func(t *testing.T) { r.badInput(t, image, small, failing) })
	t.Run("secrets", r.checkSecrets)
	t.Run("run_image", r.runImage)
	t.Run("power_off", r.powerOff)
	t.Run("disks", func(t *testing.T) { r.searchDisks(t, large, small, failing) })
}

// mbr deploys an image with an MBR and checks that the disk starts with exactly the image.
//
// Parity: E1, E5 (whole disk)
func (r *rig) mbr(t *testing.T, image, disk string) {
	if got := r.succeed(t, "standby.get_partition_uuids", nil); got != "{}" {
		t.Errorf("partition uuids before a deployment: got %s, want {}", got)
	}
	got := r.succeed(t, "standby.prepare_image", map[string]any{"image_info": r.rawInfo("mbr.raw", sumAll(t, image))})
	want := fmt.Sprintf(`{"result":"prepare_image: image (mbr.raw) written to device /dev/vda root_uuid=0x%08x"}`,
		mbrID)
	if got != want {
		t.Errorf("prepare_image: got %s, want %s", got, want)
	}
	if got, want := sum(t, disk, 0, sizeOf(t, image)), sumAll(t, image); got != want {
		t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, want)
	}
	id := read(t, disk, 440, 4)
	want = fmt.Sprintf(`{"root uuid":"0x%02x%02x%02x%02x"}`, id[3], id[2], id[1], id[0])
	if got := r.succeed(t, "standby.get_partition_uuids", nil); got != want {
		t.Errorf("partition uuids: got %s, want %s", got, want)
	}
}

// noBootloader requests a boot loader after a whole-disk image, which contains its own. The disks must not change.
//
// Parity: M5
func (r *rig) noBootloader(t *testing.T) {
	before := r.diskStats(t)
	for _, root := range []any{nil, "0x00000000"} {
		got := r.succeed(t, "image.install_bootloader", map[string]any{
			"root_uuid": root, "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "bios",
		})
		if got != "null" {
			t.Errorf("root uuid %v: got result %s, want null", root, got)
		}
	}
	if diff := cmp.Diff(before, r.diskStats(t)); diff != "" || len(before) == 0 {
		t.Errorf("the disks were written to, or there are none; writes -before +after:\n%s", diff)
	}
}

// diskStats counts a machine's requests that change a disk, and the bytes that it wrote.
type diskStats struct {
	Writes   int64 `json:"wr_operations"`
	Written  int64 `json:"wr_bytes"`
	Discards int64 `json:"unmap_operations"`
	Flushes  int64 `json:"flush_operations"`
}

// diskStats returns the counts of each disk of the machine so far.
func (r *rig) diskStats(t *testing.T) map[string]diskStats {
	t.Helper()
	answer, err := r.machine.QMP(soon(t), "query-blockstats", nil)
	if err != nil {
		t.Fatal(err)
	}
	var disks []struct {
		Device string    `json:"qdev"`
		Stats  diskStats `json:"stats"`
	}
	if err := json.Unmarshal(answer, &disks); err != nil {
		t.Fatal(err)
	}
	stats := map[string]diskStats{}
	for _, d := range disks {
		stats[d.Device] = d.Stats
	}
	return stats
}

// written returns the number of bytes that the machine has written to its disks.
func (r *rig) written(t *testing.T) (bytes int64) {
	t.Helper()
	for _, disk := range r.diskStats(t) {
		bytes += disk.Written
	}
	return bytes
}

// sync flushes all data. Its result is null.
func (r *rig) sync(t *testing.T) {
	if got := r.succeed(t, "standby.sync", nil); got != "null" {
		t.Errorf("got result %s, want null", got)
	}
}

// big deploys an image larger than the memory with a config drive, as the conductor does.
//
// Parity: E1, K4, K13
func (r *rig) big(t *testing.T, disk string) {
	image := gptImage(t, "gpt", bigImage)
	r.images.File("gpt.raw", image)
	const instance = "5d1c9e5e-6f1c-4f0e-8a42-7f0a2d6f9c11"
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": instance}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checksum := sumAll(t, image)
	source := conductor.Image{URL: r.images.URLFrom(host, "gpt.raw"), Format: "raw", Checksum: checksum}
	if err := r.node.WriteImage(soon(t), source, drive); err != nil {
		t.Fatal(err)
	}
	checkGPT(t, image, disk)
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	last := table.Partitions[len(table.Partitions)-1]
	got := read(t, disk, last.Start, last.Size)
	if len(table.Partitions) != 3 || !bytes.Contains(got, []byte(instance)) {
		t.Errorf("got %d partitions, want 3, the last one holding the config drive", len(table.Partitions))
	}
}

// held sends a request whose body does not end until release is called. The agent does not stop the machine before.
func (r *rig) held(t *testing.T) (release func()) {
	t.Helper()
	raw, err := r.dial(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if _, err := fmt.Fprintf(conn,
		"POST /v1/commands/?agent_token=%s HTTP/1.1\r\nHost: agent\r\nContent-Length: 99\r\n\r\n{",
		r.node.Token()); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close() }
}

// commands returns the agent's list of commands, requested by a client that keeps its connection.
func (r *rig) commands(t *testing.T, client *http.Client) []conductor.Record {
	t.Helper()
	status, answer := r.callWith(t, client, http.MethodGet, r.node.Token(), "")
	var list struct{ Commands []conductor.Record }
	if err := json.Unmarshal([]byte(answer), &list); err != nil || status != http.StatusOK || len(list.Commands) == 0 {
		t.Fatalf("got %d %.200q (%v), want the list of commands", status, answer, err)
	}
	return list.Commands
}

// runImage restarts the machine. It boots the ramdisk again, which is loaded directly, as after a failed deployment.
// The agent answers for two seconds after the command, which a TLS handshake can exceed on a busy host: the list of
// commands is requested over a connection from before.
//
// Parity: E3, A11
func (r *rig) runImage(t *testing.T) {
	token := r.node.Token()
	client := r.client()
	defer client.CloseIdleConnections()
	r.commands(t, client) // opens the connection
	release := r.held(t)
	record, err := r.node.Command(t.Context(), "standby.run_image", nil, false)
	if err != nil || record.Status != conductor.Running {
		t.Fatalf("got %+v and %v, want a running command", record, err)
	}
	list := r.commands(t, client)
	release()
	if last := list[len(list)-1]; last.Name != "run_image" || last.Status != conductor.Running || len(list) < 10 {
		t.Errorf("the last of %d commands is %s %s, want run_image %s after all others",
			len(list), last.Name, last.Status, conductor.Running)
	}
	event, err := r.machine.WaitEvent(soon(t), "RESET", 1)
	if err != nil {
		t.Fatal(err)
	}
	fromGuest(t, event)
	r.node.Rebooted()
	r.waitAgent(t)
	if list, err = r.node.Commands(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the restart: got commands %v and %v, want none", list, err)
	}
	if r.node.Token() == token {
		t.Error("the agent has its old token, want a fresh one")
	}
}

// Parity: E3
func (r *rig) powerOff(t *testing.T) {
	if _, err := r.node.Command(t.Context(), "standby.power_off", nil, false); err != nil {
		t.Fatal(err)
	}
	event, err := r.machine.WaitEvent(soon(t), "SHUTDOWN", 1)
	if err != nil {
		t.Fatal(err)
	}
	fromGuest(t, event)
	if err := r.machine.Wait(soon(t)); err != nil {
		t.Error(err)
	}
}

// fromGuest checks that the guest itself caused the event.
func fromGuest(t *testing.T, e qemu.Event) {
	t.Helper()
	var data struct {
		Guest bool `json:"guest"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil || !data.Guest {
		t.Errorf("got event %s %s, want one that the guest asked for", e.Name, e.Data)
	}
}

// checkGPT compares a disk with the GPT image that was deployed on it: the partitions with their content, and a table
// without errors according to sgdisk, so that its backup is at the end of the disk.
func checkGPT(t *testing.T, image, disk string) {
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
		if got, want := sum(t, disk, p.Start, p.Size), sum(t, image, p.Start, p.Size); got != want {
			t.Errorf("partition %d: got SHA-256 %s, want %s", p.Number, got, want)
		}
	}
	soundGPT(t, disk)
}
