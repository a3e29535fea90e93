//go:build linux

package images

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

const (
	bigImage = 384 * rig.MiB // more than the machine's memory
	// badByte is the offset at which the failing disk fails.
	badByte = 20 * rig.MiB
)

// TestDeploy deploys on one machine with little memory and three disks: the large one is the default root disk, the
// others are selected by hints.
//
// Parity: R14, A16, E3
func TestDeploy(t *testing.T) {
	t.Parallel()
	large := rig.File(t, "large", 5<<30, nil)
	small := rig.File(t, "small", 64*rig.MiB, rig.OldContent{})
	failing := rig.File(t, "failing", 64*rig.MiB, rig.OldContent{})
	r := rig.Start(t, rig.Setup{
		Append: "ipa-image-download-connection-retries=1 ipa-image-download-connection-retry-interval=1 " +
			"ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 ipa-progress-interval=3 ironroot.shell=1" +
			plantedParameters(),
		Machine: qemu.Config{Memory: rig.Memory, Disks: []qemu.Disk{
			{File: large, Serial: "large"},
			{File: small, Serial: "small"},
			{File: failing, Serial: "failing", Faults: []qemu.Fault{{Type: "write", Offset: badByte}}},
		}},
	})
	r.WaitAgent(t)
	t.Run("certificate", func(t *testing.T) { generatedCertificate(t, r) })
	image := rig.MBRImage(t, "mbr", 24*rig.MiB)
	r.Images.File("mbr.raw", image)
	t.Run("whole disk", func(t *testing.T) { mbr(t, r, image, large) })
	t.Run("boot loader", func(t *testing.T) { noBootloader(t, r) })
	t.Run("sync", func(t *testing.T) { checkSync(t, r) })
	t.Run("qcow2", func(t *testing.T) { qcow2(t, r, image, small) })
	t.Run("checksums", func(t *testing.T) { checksums(t, r, small) })
	t.Run("larger than memory", func(t *testing.T) { big(t, r, large) })
	t.Run("progress", func(t *testing.T) { writeProgress(t, r, small) })
	t.Run("bad input", func(t *testing.T) { badInput(t, r, image, small, failing) })
	t.Run("secrets", func(t *testing.T) { checkSecrets(t, r) })
	t.Run("run_image", func(t *testing.T) { runImage(t, r) })
	t.Run("power_off", r.PowerOff)
	t.Run("disks", func(t *testing.T) { searchDisks(t, r, large, small, failing) })
}

// mbr deploys an image with an MBR and checks that the disk starts with exactly the image.
//
// Parity: E1, E5 (whole disk)
func mbr(t *testing.T, r *rig.Rig, image, disk string) {
	if got := r.Succeed(t, "standby.get_partition_uuids", nil); got != "{}" {
		t.Errorf("partition uuids before a deployment: got %s, want {}", got)
	}
	got := r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": r.RawInfo("mbr.raw", rig.SumAll(t,
		image))})
	want := fmt.Sprintf(`{"result":"prepare_image: image (mbr.raw) written to device /dev/vda root_uuid=0x%08x"}`,
		rig.MBRID)
	if got != want {
		t.Errorf("prepare_image: got %s, want %s", got, want)
	}
	if got, want := rig.Sum(t, disk, 0, rig.SizeOf(t, image)), rig.SumAll(t, image); got != want {
		t.Errorf("the disk's SHA-256 is %s, want the image's, %s", got, want)
	}
	id := rig.Read(t, disk, 440, 4)
	want = fmt.Sprintf(`{"root uuid":"0x%02x%02x%02x%02x"}`, id[3], id[2], id[1], id[0])
	if got := r.Succeed(t, "standby.get_partition_uuids", nil); got != want {
		t.Errorf("partition uuids: got %s, want %s", got, want)
	}
}

// noBootloader requests a boot loader after a whole-disk image, which contains its own. The disks must not change.
//
// Parity: M5
func noBootloader(t *testing.T, r *rig.Rig) {
	before := r.DiskStats(t)
	for _, root := range []any{nil, "0x00000000"} {
		got := r.Succeed(t, "image.install_bootloader", map[string]any{
			"root_uuid": root, "efi_system_part_uuid": nil, "prep_boot_part_uuid": nil, "target_boot_mode": "bios",
		})
		if got != "null" {
			t.Errorf("root uuid %v: got result %s, want null", root, got)
		}
	}
	if diff := cmp.Diff(before, r.DiskStats(t)); diff != "" || len(before) == 0 {
		t.Errorf("the disks were written to, or there are none; writes -before +after:\n%s", diff)
	}
}

// checkSync flushes all data. Its result is null.
func checkSync(t *testing.T, r *rig.Rig) {
	if got := r.Succeed(t, "standby.sync", nil); got != "null" {
		t.Errorf("got result %s, want null", got)
	}
}

// big deploys an image larger than the memory with a config drive, as the conductor does.
//
// Parity: E1, K4, K13
func big(t *testing.T, r *rig.Rig, disk string) {
	image := gptImage(t, "gpt", bigImage)
	r.Images.File("gpt.raw", image)
	const instance = "5d1c9e5e-6f1c-4f0e-8a42-7f0a2d6f9c11"
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": instance}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checksum := rig.SumAll(t, image)
	source := conductor.Image{URL: r.Images.URLFrom(rig.Host, "gpt.raw"), Format: "raw", Checksum: checksum}
	if err := r.Node.WriteImage(rig.Soon(t), source, drive); err != nil {
		t.Fatal(err)
	}
	rig.CheckGPT(t, image, disk)
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	last := table.Partitions[len(table.Partitions)-1]
	got := rig.Read(t, disk, last.Start, last.Size)
	if len(table.Partitions) != 3 || !bytes.Contains(got, []byte(instance)) {
		t.Errorf("got %d partitions, want 3, the last one holding the config drive", len(table.Partitions))
	}
}

// held sends a request whose body does not end until release is called. The agent does not stop the machine before.
func held(t *testing.T, r *rig.Rig) (release func()) {
	t.Helper()
	raw, err := r.DialContext(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if _, err := fmt.Fprintf(conn,
		"POST /v1/commands/?agent_token=%s HTTP/1.1\r\nHost: agent\r\nContent-Length: 99\r\n\r\n{",
		r.Node.Token()); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close() }
}

// commands returns the agent's list of commands, requested by a client that keeps its connection.
func commands(t *testing.T, r *rig.Rig, client *http.Client) []conductor.Record {
	t.Helper()
	status, answer := r.CallWith(t, client, http.MethodGet, r.Node.Token(), "")
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
func runImage(t *testing.T, r *rig.Rig) {
	token := r.Node.Token()
	client := r.Client()
	defer client.CloseIdleConnections()
	commands(t, r, client) // opens the connection
	release := held(t, r)
	record, err := r.Node.Command(t.Context(), "standby.run_image", nil, false)
	if err != nil || record.Status != conductor.Running {
		t.Fatalf("got %+v and %v, want a running command", record, err)
	}
	list := commands(t, r, client)
	release()
	if last := list[len(list)-1]; last.Name != "run_image" || last.Status != conductor.Running || len(list) < 10 {
		t.Errorf("the last of %d commands is %s %s, want run_image %s after all others",
			len(list), last.Name, last.Status, conductor.Running)
	}
	event, err := r.Machine.WaitEvent(rig.Soon(t), "RESET", 1)
	if err != nil {
		t.Fatal(err)
	}
	rig.CheckFromGuest(t, event)
	r.Node.Rebooted()
	r.WaitAgent(t)
	if list, err = r.Node.Commands(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the restart: got commands %v and %v, want none", list, err)
	}
	if r.Node.Token() == token {
		t.Error("the agent has its old token, want a fresh one")
	}
}
