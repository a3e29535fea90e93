//go:build linux

package images

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
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/storage/partition"
)

// TestConfigDrives deploys images and config drives onto special disks: with sectors of 4096 bytes, of 3 TiB, or
// without free space for another partition.
func TestConfigDrives(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "sgdisk", "sfdisk", "blkid", "fsck.vfat", "mtype", "dd")
	large := rig.File(t, "large", 3<<40, nil)
	native := rig.File(t, "native", 256*rig.MiB, nil)
	plain := rig.File(t, "plain", 256*rig.MiB, nil)
	r := rig.Start(t, rig.Setup{Machine: qemu.Config{Memory: rig.Memory, Disks: []qemu.Disk{
		{File: large, Serial: "large"},
		{File: native, Serial: "native", Sector: 4096},
		{File: plain, Serial: "plain"},
	}}})
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": rig.DriveUUID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for name, path := range map[string]string{
		"gpt.raw": gptImage(t, "gpt.raw", 24*rig.MiB), "three.raw": primaries(t, 3), "four.raw": primaries(t, 4),
	} {
		r.Images.File(name, path)
		sums[name] = rig.SumAll(t, path)
	}
	r.WaitAgent(t)
	t.Run("sectors of 4096 bytes", func(t *testing.T) { nativeSectors(t, r, native, drive) })
	t.Run("limits", func(t *testing.T) { driveLimits(t, r, plain, sums, drive) })
	t.Run("sources", func(t *testing.T) { driveSources(t, r, plain, sums) })
	t.Run("present partitions", func(t *testing.T) { drivePartitions(t, r, plain, drive) })
	t.Run("3 TiB", func(t *testing.T) { largeDisk(t, r, large, sums, drive) })
}

// primaries creates a disk image with n primary partitions of an MBR.
func primaries(t *testing.T, n int) string {
	t.Helper()
	path := rig.File(t, "primaries", 24*rig.MiB, rig.Noise())
	rig.Patch(t, path, 0, make([]byte, rig.MiB))
	script := "label: dos\\n"
	for i := range n {
		script += fmt.Sprintf("start=%d, size=2048\\n", 2048*(i+1))
	}
	testenv.Run(t, "sh", "-c", "printf '"+script+`' | sfdisk -q "$0"`, path)
	return path
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
func nativeSectors(t *testing.T, r *rig.Rig, disk, drive string) {
	image := rig.File(t, "native.raw", 24*rig.MiB, rig.Noise())
	rig.Patch(t, image, 0, make([]byte, rig.MiB))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+16M", testenv.Loop(t, image, 4096))
	r.Images.File("native.raw", image)
	if record := r.DeployWithDrive(t, "native", "native.raw", rig.SumAll(t, image),
		drive); record.Status != conductor.Succeeded {
		t.Fatal(record.Error)
	}
	if got, want := rig.Sum(t, disk, rig.MiB, 16*rig.MiB), rig.Sum(t, image, rig.MiB, 16*rig.MiB); got != want {
		t.Errorf("partition 1: got SHA-256 %s, want %s", got, want)
	}
	device := testenv.Loop(t, disk, 4096)
	rig.SoundGPT(t, device)
	p := lastPartition(t, device, 2)
	if end := int64(256*rig.MiB - 5*4096); p.Start+p.Size > end || p.Start < end-66*rig.MiB {
		t.Errorf("got config drive %+v, want it in the last 64 MiB before byte %d", p, end)
	}
	content := rig.File(t, "drive", 0, nil)
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
		"::openstack/latest/meta_data.json"); !strings.Contains(got, rig.DriveUUID) {
		t.Errorf("meta_data.json: got %q, want it to have %s", got, rig.DriveUUID)
	}
}

// driveLimits checks the errors for a drive that is too large, which leaves the disk unchanged, and for an MBR without
// a free primary partition. An MBR with three partitions can hold a drive.
//
// Parity: L7
func driveLimits(t *testing.T, r *rig.Rig, disk string, sums map[string]string, drive string) {
	for _, tt := range []struct {
		name, image, drive, want string
		partitions               int // 0 means that the disk is unchanged
	}{
		{"drive of 65 MiB", "gpt.raw", packed(t, make([]byte, 65*rig.MiB)), "larger than 67108864 bytes", 0},
		{"MBR with four primary partitions", "four.raw", drive, "/dev/vdc: the MBR has no free primary partition", 4},
		{"MBR with three", "three.raw", drive, "", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			past := bytes.Repeat([]byte{0xa5}, rig.MiB)
			rig.Patch(t, disk, 0, past)
			record := r.DeployWithDrive(t, "plain", tt.image, sums[tt.image], tt.drive)
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
			} else if !bytes.Equal(rig.Read(t, disk, 0, rig.MiB), past) {
				t.Error("the disk was written to")
			}
		})
	}
}

// largeDisk checks that a config drive is placed at the end of a GPT, and below the limit of an MBR.
//
// Parity: L7
func largeDisk(t *testing.T, r *rig.Rig, disk string, sums map[string]string, drive string) {
	for _, tt := range []struct {
		name, image string
		partitions  int
		end         int64 // the config drive must end before this offset, and near it
	}{
		{"GPT", "gpt.raw", 3, 3<<40 - 33*512},
		{"MBR", "three.raw", 4, 2 << 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if record := r.DeployWithDrive(t, "large", tt.image, sums[tt.image],
				drive); record.Status != conductor.Succeeded {
				t.Fatal(record.Error)
			}
			p := lastPartition(t, disk, tt.partitions)
			if p.Start+p.Size > tt.end || p.Start < tt.end-66*rig.MiB {
				t.Errorf("got config drive %+v, want it in the last 64 MiB before byte %d", p, tt.end)
			}
			if !bytes.Contains(rig.Read(t, disk, p.Start, rig.MiB), []byte(rig.DriveUUID)) {
				t.Error("the partition does not hold the config drive")
			}
			if tt.name == "MBR" {
				testenv.Run(t, "sfdisk", "--verify", "-q", disk)
			} else {
				rig.SoundGPT(t, disk)
			}
		})
	}
}

// driveSources checks config drives sent as text and by URL, encoded and raw. Their files are on the disk.
//
// Parity: L5
func driveSources(t *testing.T, r *rig.Rig, disk string, sums map[string]string) {
	testenv.Programs(t, "isoinfo")
	for n, source := range []string{"text", "URL of the text", "URL of the drive"} {
		t.Run(source, func(t *testing.T) {
			meta := fmt.Sprintf(`{"uuid":"1b0c7c1e-77f5-4f8e-9f0e-%012d"}`, n)
			text, err := conductor.ConfigDrive(map[string]any{"uuid": meta[9:45]}, []byte(source))
			if err != nil {
				t.Fatal(err)
			}
			content := unpacked(t, text)
			r.Images.Bytes("drive.text", []byte(text))
			r.Images.Bytes("drive", content)
			given := []string{text, r.Images.URLFrom(rig.Host, "drive.text"), r.Images.URLFrom(rig.Host, "drive")}[n]
			if record := r.DeployWithDrive(t, "plain", "gpt.raw", sums["gpt.raw"],
				given); record.Status != conductor.Succeeded {
				t.Fatal(record.Error)
			}
			p := lastPartition(t, disk, 3)
			mounted := rig.File(t, "mounted", p.Size, bytes.NewReader(rig.Read(t, disk, p.Start, p.Size)))
			for name, want := range map[string]string{"meta_data.json": meta, "user_data": source} {
				if got := testenv.Run(t, "isoinfo", "-R", "-i", mounted, "-x", "/openstack/latest/"+name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			if got := rig.Read(t, disk, p.Start, int64(len(content))); !bytes.Equal(got, content) {
				t.Error("the partition does not hold the drive byte for byte")
			}
		})
	}
}

// drivePartitions checks that a partition of the image with the drive's label receives the drive, and that the other
// partitions do not change. Two partitions with the label are an error.
//
// Parity: L6
func drivePartitions(t *testing.T, r *rig.Rig, disk, drive string) {
	content := unpacked(t, drive)
	image := rig.File(t, "labelled.raw", 24*rig.MiB, rig.Noise())
	rig.Patch(t, image, 0, make([]byte, rig.MiB))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+6M", "-n", "2:8M:+6M", "-n", "3:16M:+6M", image)
	fs := rig.File(t, "fs", 6*rig.MiB, nil)
	testenv.Run(t, "mkfs.vfat", "-n", "CONFIG-2", fs)
	rig.Patch(t, image, 8*rig.MiB, rig.Read(t, fs, 0, 6*rig.MiB))
	r.Images.File("one.raw", image)
	if record := r.DeployWithDrive(t, "plain", "one.raw", rig.SumAll(t, image),
		drive); record.Status != conductor.Succeeded {
		t.Fatal(record.Error)
	}
	lastPartition(t, disk, 3)
	if got := rig.Read(t, disk, 8*rig.MiB, int64(len(content))); !bytes.Equal(got, content) {
		t.Error("the second partition does not hold the drive")
	}
	for _, at := range []int64{rig.MiB, 16 * rig.MiB} {
		if got, want := rig.Sum(t, disk, at, 6*rig.MiB), rig.Sum(t, image, at, 6*rig.MiB); got != want {
			t.Errorf("partition at %d: got SHA-256 %s, want the image's, %s", at, got, want)
		}
	}
	rig.Patch(t, image, 16*rig.MiB, content) // has this label in lower case
	r.Images.File("two.raw", image)
	record := r.DeployWithDrive(t, "plain", "two.raw", rig.SumAll(t, image), drive)
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
