//go:build linux

package images

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// firstRoot is the UUID of the first deployed root file system.
const firstRoot = "11111111-aaaa-4bbb-8ccc-dddddddddddd"

// rootImage creates an image of a small root file system with the UUID.
func rootImage(t *testing.T, uuid string) string {
	t.Helper()
	testenv.Programs(t, "mke2fs")
	path := rig.File(t, "root", 32*rig.MiB, nil)
	testenv.Run(t, "mke2fs", "-q", "-t", "ext4", "-U", uuid, "-L", "cloudimg", path)
	return path
}

// layout returns the fields that Ironic adds to image_info for a partition image, with some of them changed.
func layout(changes map[string]any) map[string]any {
	fields := map[string]any{
		"image_type": "partition", "root_gb": 1, "root_mb": 96, "swap_mb": 0, "ephemeral_mb": 0,
		"ephemeral_format":   "ext4",
		"preserve_ephemeral": false, "kernel": nil, "ramdisk": nil, "boot_option": "local", "deploy_boot_mode": "bios",
	}
	maps.Copy(fields, changes)
	return fields
}

// TestPartitionImages deploys partition images to several disks of one machine. The layouts are checked on the host.
func TestPartitionImages(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.Programs(t, "sgdisk", "sfdisk", "parted", "blkid", "e2fsck", "fsck.vfat", "qemu-img", "mke2fs", "isoinfo",
		"debugfs", "mtype")
	uefi, msdos, gpt := rig.File(t, "uefi", 4<<30, nil), rig.File(t, "msdos", 200*rig.MiB, rig.OldContent{}),
		rig.File(t, "gpt", 200*rig.MiB, rig.OldContent{})
	r := rig.Start(t, rig.Setup{Machine: qemu.Config{Memory: rig.Memory, Disks: []qemu.Disk{
		{File: uefi, Serial: "uefi"}, {File: msdos, Serial: "msdos"}, {File: gpt, Serial: "gpt"},
	}}})
	r.WaitAgent(t)
	const second = "22222222-aaaa-4bbb-8ccc-dddddddddddd"
	image, other := rootImage(t, firstRoot), rootImage(t, second)
	r.Images.File("root.raw", image)
	r.Images.File("other.raw", other)
	qcow := filepath.Join(t.TempDir(), "root.qcow2")
	testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", image, qcow)
	r.Images.File("root.qcow2", qcow)
	if t.Run("uefi", func(t *testing.T) { uefiLayout(t, r, image, uefi, firstRoot) }) {
		t.Run("preserve_ephemeral", func(t *testing.T) { preserve(t, r, other, uefi, second) })
		t.Run("inject_files", func(t *testing.T) { injectFiles(t, r, uefi) })
	}
	t.Run("msdos", func(t *testing.T) {
		biosLayout(t, r, image, qcow, msdos, "msdos", "boot_mode:bios",
			"1:1.00MiB:21.0MiB:20.0MiB:ext4::;2:21.0MiB:28.0MiB:7.00MiB:linux-swap(v1)::swap;"+
				"3:28.0MiB:29.0MiB:1.00MiB:::;4:29.0MiB:125MiB:96.0MiB:ext4::boot;")
	})
	t.Run("gpt", func(t *testing.T) {
		biosLayout(t, r, image, qcow, gpt, "gpt", "boot_mode:bios,disk_label:gpt",
			"1:1.00MiB:2.00MiB:1.00MiB::primary:bios_grub;2:2.00MiB:22.0MiB:20.0MiB:ext4:primary:;"+
				"3:22.0MiB:29.0MiB:7.00MiB:linux-swap(v1):primary:swap;4:29.0MiB:30.0MiB:1.00MiB::primary:;"+
				"5:30.0MiB:126MiB:96.0MiB:ext4:primary:;")
	})
	t.Run("root too small", func(t *testing.T) { rootTooSmall(t, r, image, gpt) })
}

// uefiLayout deploys with all possible partitions, as the conductor does.
//
// Parity: L1, L3, K5, E5 (partition image)
func uefiLayout(t *testing.T, r *rig.Rig, image, disk, rootUUID string) {
	const instance = "c0ffee00-6f1c-4f0e-8a42-7f0a2d6f9c11"
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": instance}, nil)
	if err != nil {
		t.Fatal(err)
	}
	source := conductor.Image{
		URL: r.Images.URLFrom(rig.Host, "root.raw"), Format: "raw", Checksum: rig.SumAll(t, image),
		Info: layout(map[string]any{"swap_mb": 16, "ephemeral_mb": 64, "deploy_boot_mode": "uefi"}),
	}
	if err := r.Node.WriteImage(rig.Soon(t), source, drive); err != nil {
		t.Fatal(err)
	}
	rig.SoundGPT(t, disk)
	// Number, first and last sector, size and type: the table of the protocol.
	want := []string{
		"1 2048 1128447 550.0 MiB EF00", "2 1128448 1259519 64.0 MiB 8300", "3 1259520 1292287 16.0 MiB 8200",
		"4 1292288 1294335 1024.0 KiB 8300", "5 1294336 1490943 96.0 MiB 8300",
	}
	got := regexp.MustCompile(`(?m)^ +(\d.*) primary$`).FindAllStringSubmatch(testenv.Run(t, "sgdisk", "-p", disk), -1)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || strings.Join(strings.Fields(got[i][1]), " ") != want[i] {
			t.Fatalf("sgdisk -p: got %q, want %q", got, want)
		}
	}
	parts := partitions(t, disk)
	for n, want := range map[int]string{
		1: "vfat efi-part", 2: "ext4 ephemeral0", 3: "swap swap1", 4: "iso9660 config-2", 5: "ext4 cloudimg",
	} {
		if got := tags(t, parts(n), "TYPE", "LABEL"); got != want {
			t.Errorf("partition %d: got %q, want %q", n, got, want)
		}
	}
	testenv.Run(t, "fsck.vfat", "-n", parts(1))
	testenv.Run(t, "e2fsck", "-f", "-n", parts(2))
	checkUUIDs(t, r, parts, rootUUID, 1, 5)
	if got, want := rig.Sum(t, parts(5), 0, rig.SizeOf(t, image)), rig.SumAll(t, image); got != want {
		t.Errorf("root: got SHA-256 %s, want %s", got, want)
	}
	if got := testenv.Run(t, "isoinfo", "-R", "-x", "/openstack/latest/meta_data.json",
		"-i", parts(4)); !strings.Contains(got, instance) {
		t.Errorf("the config drive's meta data: got %q, want %s in it", got, instance)
	}
}

// preserve puts a file on the ephemeral partition, rebuilds the node with another image, and checks that the file is
// kept.
//
// Parity: L3
func preserve(t *testing.T, r *rig.Rig, image, disk, rootUUID string) {
	const name, content = "precious", "not to be lost"
	ephemeral := func(do func(dir string)) {
		t.Helper()
		dir := t.TempDir()
		if err := unix.Mount(partitions(t, disk)(2), dir, "ext4", 0, ""); err != nil {
			t.Fatal(err)
		}
		do(dir)
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	ephemeral(func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Error(err)
		}
	})
	table := testenv.Run(t, "sfdisk", "-d", disk)
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": "another"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	source := conductor.Image{
		URL: r.Images.URLFrom(rig.Host, "other.raw"), Format: "raw", Checksum: rig.SumAll(t, image),
		Info: layout(map[string]any{
			"swap_mb": 16, "ephemeral_mb": 64, "deploy_boot_mode": "uefi", "preserve_ephemeral": true,
		}),
	}
	if err := r.Node.WriteImage(rig.Soon(t), source, drive); err != nil {
		t.Fatal(err)
	}
	if got := testenv.Run(t, "sfdisk", "-d", disk); got != table {
		t.Errorf("the table has changed:\n%s\nwas\n%s", got, table)
	}
	parts := partitions(t, disk)
	if got, want := rig.Sum(t, parts(5), 0, rig.SizeOf(t, image)), rig.SumAll(t, image); got != want {
		t.Errorf("root: got SHA-256 %s, want the new image's, %s", got, want)
	}
	checkUUIDs(t, r, parts, rootUUID, 1, 5)
	ephemeral(func(dir string) {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			t.Errorf("the file on the ephemeral partition: got %q and %v, want %q", got, err, content)
		}
	})
}

// injectFiles writes files to the ESP and to the root of a deployed disk, one of them from a URL with a field of the
// node, and removes one.
//
// Parity: P8
func injectFiles(t *testing.T, r *rig.Rig, disk string) {
	const text = "injected\n"
	r.Images.Bytes("motd-"+r.Node.UUID(), []byte("for this node\n"))
	content := base64.StdEncoding.EncodeToString([]byte(text))
	ofNode := map[string]any{"path": "/etc/node", "content": content, "partition": 5, "mode": 0o640}
	step := func(files ...map[string]any) {
		t.Helper()
		args := map[string]any{"files": files}
		r.Succeed(t, "deploy.execute_deploy_step", map[string]any{
			"step": map[string]any{"step": "inject_files", "interface": "deploy", "args": args},
			"node": map[string]any{
				"uuid": r.Node.UUID(), "instance_info": map[string]any{},
				"properties": map[string]any{"inject_files": []any{ofNode}},
			},
			"ports": []any{},
		})
	}
	step(
		map[string]any{"path": "/EFI/ironroot/marker.txt", "content": content, "partition": 1},
		map[string]any{"path": "/etc/hostname", "content": content, "owner": 1000, "group": 100},
		map[string]any{"path": "/etc/motd", "content": r.Images.URLFrom(rig.Host, "motd-") + "{node[uuid]}"},
	)
	root := func(command string) string {
		return testenv.Run(t, "debugfs", "-R", command, partitions(t, disk)(5))
	}
	if got := root("ls -l /etc"); !regexp.MustCompile(`100640 \(1\) +0 +0 .* node\n`).MatchString(got) ||
		!regexp.MustCompile(`100644 \(1\) +1000 +100 .* hostname\n`).MatchString(got) {
		t.Errorf("/etc: got %s, want node of mode 0640 and hostname of user 1000 and group 100", got)
	}
	step(map[string]any{"path": "/etc/node", "deleted": true})
	if got := root("ls -l /etc"); strings.Contains(got, " node\n") {
		t.Errorf("/etc: got %s, want no file node", got)
	}
	for name, want := range map[string]string{"hostname": text, "motd": "for this node\n"} {
		if got := root("cat /etc/" + name); !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("/etc/%s: got %q, want %q", name, got, want)
		}
	}
	parts := partitions(t, disk)
	testenv.Run(t, "fsck.vfat", "-n", parts(1))
	testenv.Run(t, "e2fsck", "-f", "-n", parts(5))
	// mtype warns that a loop device has no geometry.
	got := testenv.Run(t, "mtype", "-i", parts(1), "::/EFI/ironroot/marker.txt")
	if !strings.HasSuffix(got, text) {
		t.Errorf("file on the ESP: got %q, want %q", got, text)
	}
}

// biosLayout deploys a qcow2 image to the disk with the serial number. want is parted's output for the partitions.
//
// Parity: L2
func biosLayout(t *testing.T, r *rig.Rig, image, qcow, disk, serial, capabilities, want string) {
	r.Properties = map[string]any{"capabilities": capabilities}
	r.SetHints(t, map[string]any{"serial": serial})
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": serial}, nil)
	if err != nil {
		t.Fatal(err)
	}
	info := r.RawInfo("root.qcow2", rig.SumAll(t, qcow))
	maps.Copy(info, layout(map[string]any{"disk_format": "qcow2", "swap_mb": 7, "ephemeral_mb": 20}))
	got := r.Succeed(t, "standby.prepare_image", map[string]any{"image_info": info, "configdrive": drive})
	if !regexp.MustCompile(`written to device /dev/vd[bc] root_uuid=` + firstRoot + `"`).MatchString(got) {
		t.Errorf("got %s, want a text with the device and root's UUID", got)
	}
	lines := strings.Split(strings.TrimSpace(testenv.Run(t, "parted", "-m", "-s", disk, "unit", "MiB", "print")), "\n")
	if label := strings.Split(lines[1], ":")[5]; label != serial {
		t.Errorf("parted sees a table of type %s, want %s", label, serial)
	}
	if got := strings.Join(lines[2:], ""); got != want {
		t.Errorf("parted prints\n%s, want\n%s", got, want)
	}
	if serial == "gpt" {
		rig.SoundGPT(t, disk)
	} else {
		testenv.Run(t, "sfdisk", "-V", disk)
	}
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	root := table.Partitions[len(table.Partitions)-1]
	if got, want := rig.Sum(t, disk, root.Start, rig.SizeOf(t, image)), rig.SumAll(t, image); got != want {
		t.Errorf("root: got SHA-256 %s, want %s", got, want)
	}
	checkUUIDs(t, r, partitions(t, disk), firstRoot, 0, root.Number)
}

// rootTooSmall requests a root partition smaller than the image. The disk must not change.
//
// Parity: L4
func rootTooSmall(t *testing.T, r *rig.Rig, image, disk string) {
	before := rig.SumAll(t, disk)
	info := r.RawInfo("root.raw", rig.SumAll(t, image))
	maps.Copy(info, layout(map[string]any{"root_mb": 31}))
	for _, format := range []string{"raw", "qcow2"} {
		if format == "qcow2" {
			info["urls"] = []string{r.Images.URLFrom(rig.Host, "root.qcow2")}
		}
		info["disk_format"] = format
		record := r.Command(t, "standby.prepare_image", map[string]any{"image_info": info})
		if e := record.Error; record.Status != conductor.Failed || e == nil || e.Type != "InvalidCommandParamsError" ||
			e.Code != http.StatusBadRequest || !strings.Contains(e.Details, "32 MB, root_mb is 31") {
			t.Errorf("%s: got %s %+v, want an InvalidCommandParamsError with both sizes", format, record.Status, e)
		}
	}
	if rig.SumAll(t, disk) != before {
		t.Error("the disk has changed")
	}
}

// checkUUIDs compares the agent's UUIDs of partitions with blkid's. esp is 0 if there is no ESP.
func checkUUIDs(t *testing.T, r *rig.Rig, parts func(int) string, rootUUID string, esp, root int) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(r.Succeed(t, "standby.get_partition_uuids", nil)), &got); err != nil {
		t.Fatal(err)
	}
	if found := tags(t, parts(root), "UUID"); got["root uuid"] != rootUUID || found != rootUUID {
		t.Errorf("root uuid: got %v, blkid %s, want %s", got["root uuid"], found, rootUUID)
	}
	want := any(nil)
	if esp > 0 {
		want = tags(t, parts(esp), "UUID")
	}
	if got["efi system partition uuid"] != want {
		t.Errorf("efi system partition uuid: got %v, want %v", got["efi system partition uuid"], want)
	}
	paths, _ := got["partitions"].(map[string]any)
	if path, _ := paths["root"].(string); !strings.HasSuffix(path, fmt.Sprint(root)) || len(paths) != root {
		t.Errorf("partitions: got %v, want %d with root as the last", paths, root)
	}
}

// partitions attaches a disk's file to the host. The returned function returns the device of partition n.
func partitions(t *testing.T, disk string) func(n int) string {
	t.Helper()
	device := testenv.Loop(t, disk, 512)
	if err := partition.Sync(t.Context(), sysfs.Root{}, device); err != nil {
		t.Fatal(err)
	}
	return func(n int) string { return block.PartitionPath(sysfs.Root{}, device, n) }
}

// tags returns the values that blkid finds on a device, separated by spaces.
func tags(t *testing.T, device string, names ...string) string {
	t.Helper()
	out := []byte(testenv.Run(t, "blkid", "-p", "-o", "export", device))
	var values []string
	for _, name := range names {
		for _, line := range bytes.Split(out, []byte("\n")) {
			if value, ok := bytes.CutPrefix(line, []byte(name+"=")); ok {
				values = append(values, string(value))
			}
		}
	}
	return strings.Join(values, " ")
}
