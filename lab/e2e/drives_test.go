//go:build linux

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

const driveUUID = "1b0c7c1e-77f5-4f8e-9f0e-6e1a3c1d2b4a"

// TestConfigDrives deploys images and config drives onto special disks: with sectors of 4096 bytes, of 3 TiB, or
// without free space for another partition.
func TestConfigDrives(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "sgdisk", "sfdisk", "blkid", "fsck.vfat", "mtype", "dd")
	large := file(t, "large", 3<<40, nil)
	native := file(t, "native", 256*mib, nil)
	plain := file(t, "plain", 256*mib, nil)
	r := start(t, setup{machine: qemu.Config{Memory: memory, Disks: []qemu.Disk{
		{File: large, Serial: "large"},
		{File: native, Serial: "native", Sector: 4096},
		{File: plain, Serial: "plain"},
	}}})
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": driveUUID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for name, path := range map[string]string{
		"gpt.raw": gptImage(t, "gpt.raw", 24*mib), "three.raw": primaries(t, 3), "four.raw": primaries(t, 4),
	} {
		r.images.File(name, path)
		sums[name] = sumAll(t, path)
	}
	r.waitAgent(t)
	t.Run("sectors of 4096 bytes", func(t *testing.T) { r.nativeSectors(t, native, drive) })
	t.Run("limits", func(t *testing.T) { r.driveLimits(t, plain, sums, drive) })
	t.Run("sources", func(t *testing.T) { r.driveSources(t, plain, sums) })
	t.Run("present partitions", func(t *testing.T) { r.drivePartitions(t, plain, drive) })
	t.Run("3 TiB", func(t *testing.T) { r.largeDisk(t, large, sums, drive) })
}

// primaries creates a disk image with n primary partitions of an MBR.
func primaries(t *testing.T, n int) string {
	t.Helper()
	path := file(t, "primaries", 24*mib, noise())
	patch(t, path, 0, make([]byte, mib))
	script := "label: dos\\n"
	for i := range n {
		script += fmt.Sprintf("start=%d, size=2048\\n", 2048*(i+1))
	}
	testenv.Run(t, "sh", "-c", "printf '"+script+`' | sfdisk -q "$0"`, path)
	return path
}

// put deploys a served image with a config drive onto the disk with the serial number.
func (r *rig) put(t *testing.T, serial, name, checksum, drive string) *conductor.Record {
	t.Helper()
	r.setHints(t, map[string]any{"serial": serial})
	params := map[string]any{"image_info": r.rawInfo(name, checksum), "configdrive": drive}
	return r.command(t, "standby.prepare_image", params)
}

// lastPartition returns the last partition of a disk, which must have the given number of partitions.
func lastPartition(t *testing.T, disk string, partitions int) partition.Partition {
	t.Helper()
	table, err := partition.Read(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Partitions) != partitions || table.BackupMisplaced || table.Damaged {
		t.Fatalf("%s: got %+v, want a sound table of %d partitions", disk, table, partitions)
	}
	return table.Partitions[partitions-1]
}

// nativeSectors deploys an image whose GPT uses sectors of 4096 bytes. It is written unchanged, and its backup GPT
// moves to the end of the disk. The config drive, which has smaller sectors, is converted to a FAT file system that
// can be mounted from such a disk.
//
// Parity: K15, L7
func (r *rig) nativeSectors(t *testing.T, disk, drive string) {
	image := file(t, "native.raw", 24*mib, noise())
	patch(t, image, 0, make([]byte, mib))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+16M", testenv.Loop(t, image, 4096))
	r.images.File("native.raw", image)
	if record := r.put(t, "native", "native.raw", sumAll(t, image), drive); record.Status != conductor.Succeeded {
		t.Fatal(record.Error)
	}
	if got, want := sum(t, disk, mib, 16*mib), sum(t, image, mib, 16*mib); got != want {
		t.Errorf("partition 1: got SHA-256 %s, want %s", got, want)
	}
	device := testenv.Loop(t, disk, 4096)
	soundGPT(t, device)
	p := lastPartition(t, device, 2)
	if end := int64(256*mib - 5*4096); p.Start+p.Size > end || p.Start < end-66*mib {
		t.Errorf("got config drive %+v, want it in the last 64 MiB before byte %d", p, end)
	}
	content := file(t, "drive", 0, nil)
	testenv.Run(t, "dd", "if="+disk, "of="+content, "bs=4096", fmt.Sprintf("skip=%d", p.Start/4096),
		fmt.Sprintf("count=%d", p.Size/4096), "status=none")
	testenv.Run(t, "fsck.vfat", "-n", content)
	out := testenv.Run(t, "blkid", "-p", "-o", "export", content)
	for _, want := range []string{"LABEL=CONFIG-2\n", "TYPE=vfat\n", "BLOCK_SIZE=4096\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("blkid lacks %q:\n%s", want, out)
		}
	}
	if got := testenv.Run(t, "mtype", "-i", content,
		"::openstack/latest/meta_data.json"); !strings.Contains(got, driveUUID) {
		t.Errorf("meta_data.json: got %q, want it to have %s", got, driveUUID)
	}
}

// driveLimits checks the errors for a drive that is too large, which leaves the disk unchanged, and for an MBR without
// a free primary partition. An MBR with three partitions can hold a drive.
//
// Parity: L7
func (r *rig) driveLimits(t *testing.T, disk string, sums map[string]string, drive string) {
	for _, tt := range []struct {
		name, image, drive, want string
		partitions               int // 0 means that the disk is unchanged
	}{
		{"drive of 65 MiB", "gpt.raw", packed(t, make([]byte, 65*mib)), "larger than 67108864 bytes", 0},
		{"MBR with four primary partitions", "four.raw", drive, "/dev/vdc: the MBR has no free primary partition", 4},
		{"MBR with three", "three.raw", drive, "", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			past := bytes.Repeat([]byte{0xa5}, mib)
			patch(t, disk, 0, past)
			record := r.put(t, "plain", tt.image, sums[tt.image], tt.drive)
			if tt.want == "" {
				if record.Status != conductor.Succeeded {
					t.Fatal(record.Error)
				}
				if out := testenv.Run(t, "sfdisk", "--part-type", disk, "4"); strings.TrimSpace(out) != "c" {
					t.Errorf("got type %s, want c: FAT32", out)
				}
			} else if record.Status != conductor.Failed || record.Error.Type != "DeploymentError" ||
				!strings.Contains(record.Error.Details, tt.want) {
				t.Fatalf("got %s (%v), want a DeploymentError with %q", record.Status, record.Error, tt.want)
			}
			if tt.partitions > 0 {
				lastPartition(t, disk, tt.partitions)
			} else if !bytes.Equal(read(t, disk, 0, mib), past) {
				t.Error("the disk was written to")
			}
		})
	}
}

// largeDisk checks that a config drive is placed at the end of a GPT, and below the limit of an MBR.
//
// Parity: L7
func (r *rig) largeDisk(t *testing.T, disk string, sums map[string]string, drive string) {
	for _, tt := range []struct {
		name, image string
		partitions  int
		end         int64 // the config drive must end before this offset, and near it
	}{
		{"GPT", "gpt.raw", 3, 3<<40 - 33*512},
		{"MBR", "three.raw", 4, 2 << 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if record := r.put(t, "large", tt.image, sums[tt.image], drive); record.Status != conductor.Succeeded {
				t.Fatal(record.Error)
			}
			p := lastPartition(t, disk, tt.partitions)
			if p.Start+p.Size > tt.end || p.Start < tt.end-66*mib {
				t.Errorf("got config drive %+v, want it in the last 64 MiB before byte %d", p, tt.end)
			}
			if !bytes.Contains(read(t, disk, p.Start, mib), []byte(driveUUID)) {
				t.Error("the partition does not hold the config drive")
			}
			if tt.name == "MBR" {
				testenv.Run(t, "sfdisk", "--verify", "-q", disk)
			} else {
				soundGPT(t, disk)
			}
		})
	}
}

// driveSources checks config drives sent as text and by URL, encoded and raw. Their files are on the disk.
//
// Parity: L5
func (r *rig) driveSources(t *testing.T, disk string, sums map[string]string) {
	testenv.Programs(t, "isoinfo")
	for n, source := range []string{"text", "URL of the text", "URL of the drive"} {
		t.Run(source, func(t *testing.T) {
			meta := fmt.Sprintf(`{"uuid":"1b0c7c1e-77f5-4f8e-9f0e-%012d"}`, n)
			text, err := conductor.ConfigDrive(map[string]any{"uuid": meta[9:45]}, []byte(source))
			if err != nil {
				t.Fatal(err)
			}
			content := unpacked(t, text)
			r.images.Bytes("drive.text", []byte(text))
			r.images.Bytes("drive", content)
			given := []string{text, r.images.URLFrom(host, "drive.text"), r.images.URLFrom(host, "drive")}[n]
			if record := r.put(t, "plain", "gpt.raw", sums["gpt.raw"], given); record.Status != conductor.Succeeded {
				t.Fatal(record.Error)
			}
			p := lastPartition(t, disk, 3)
			mounted := file(t, "mounted", p.Size, bytes.NewReader(read(t, disk, p.Start, p.Size)))
			for name, want := range map[string]string{"meta_data.json": meta, "user_data": source} {
				if got := testenv.Run(t, "isoinfo", "-R", "-i", mounted, "-x", "/openstack/latest/"+name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			if got := read(t, disk, p.Start, int64(len(content))); !bytes.Equal(got, content) {
				t.Error("the partition does not hold the drive byte for byte")
			}
		})
	}
}

// drivePartitions checks that a partition of the image with the drive's label receives the drive, and that the other
// partitions do not change. Two partitions with the label are an error.
//
// Parity: L6
func (r *rig) drivePartitions(t *testing.T, disk, drive string) {
	content := unpacked(t, drive)
	image := file(t, "labelled.raw", 24*mib, noise())
	patch(t, image, 0, make([]byte, mib))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+6M", "-n", "2:8M:+6M", "-n", "3:16M:+6M", image)
	fs := file(t, "fs", 6*mib, nil)
	testenv.Run(t, "mkfs.vfat", "-n", "CONFIG-2", fs)
	patch(t, image, 8*mib, read(t, fs, 0, 6*mib))
	r.images.File("one.raw", image)
	if record := r.put(t, "plain", "one.raw", sumAll(t, image), drive); record.Status != conductor.Succeeded {
		t.Fatal(record.Error)
	}
	lastPartition(t, disk, 3)
	if got := read(t, disk, 8*mib, int64(len(content))); !bytes.Equal(got, content) {
		t.Error("the second partition does not hold the drive")
	}
	for _, at := range []int64{mib, 16 * mib} {
		if got, want := sum(t, disk, at, 6*mib), sum(t, image, at, 6*mib); got != want {
			t.Errorf("partition at %d: got SHA-256 %s, want the image's, %s", at, got, want)
		}
	}
	patch(t, image, 16*mib, content) // has this label in lower case
	r.images.File("two.raw", image)
	record := r.put(t, "plain", "two.raw", sumAll(t, image), drive)
	if record.Status != conductor.Failed || record.Error.Type != "DeploymentError" ||
		!strings.Contains(record.Error.Details, "more than one partition is labelled config-2: /dev/vdc2, /dev/vdc3") {
		t.Errorf("two: got %s (%v), want a DeploymentError that names both", record.Status, record.Error)
	}
}

// unpacked decodes a config drive in Ironic's form.
func unpacked(t *testing.T, text string) []byte {
	t.Helper()
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	drive, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return drive
}

// packed encodes a config drive in Ironic's form.
func packed(t *testing.T, drive []byte) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(drive); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
