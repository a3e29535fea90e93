package imaging

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/partition"
)

// A deployment to a disk with sectors of 4096 bytes, and one with config_drive_rebuild: the image is on the disk, its
// GPT fits the disk, and the config drive, a FAT with sectors of 512 bytes, was copied to a file system with the
// disk's sector size.
//
// Parity: L7 (option)
func TestPrepareCopiesTheConfigDrive(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "fsck.vfat", "blkid")
	text, _ := configDrive(t)
	for _, tt := range []struct {
		name    string
		sector  int
		rebuild bool
		want    string // sectors of the copy, in bytes
	}{
		{"4K disk", 4096, false, "4096"},
		{"option", 512, true, "512"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testenv.SparseFile(t, imageSize)
			testenv.Run(t, "sgdisk", "-n", "1:0:+16M", testenv.Loop(t, path, tt.sector))
			disk, i := sectorDisk(t, tt.sector, tt.rebuild)
			if _, err := i.Prepare(t.Context(), rawImage(t, serve(t, path).URL, path), text); err != nil {
				t.Fatal(err)
			}
			if out := testenv.Run(t, "sgdisk", "-v", disk); !strings.Contains(out, "No problems found") {
				t.Errorf("sgdisk -v:\n%s", out)
			}
			table, err := partition.Read(t.Context(), disk)
			if err != nil {
				t.Fatal(err)
			}
			if len(table.Partitions) != 2 || table.BackupMisplaced || table.Damaged {
				t.Fatalf("got %+v, want two partitions and a valid GPT", table)
			}
			drive := disk + "p2"
			testenv.Run(t, "fsck.vfat", "-n", drive)
			// Only a copy has this OEM name and the disk's sector size.
			out := testenv.Run(t, "blkid", "-p", "-o", "export", drive)
			for _, want := range []string{"LABEL=CONFIG-2\n", "TYPE=vfat\n", "BLOCK_SIZE=" + tt.want + "\n"} {
				if !strings.Contains(out, want) {
					t.Errorf("blkid lacks %q:\n%s", want, out)
				}
			}
			maker := testenv.Run(t, "dd", "if="+drive, "bs=1", "skip=3", "count=8", "status=none")
			if maker != "MSDOS5.0" {
				t.Errorf("made by %q, want a copy", maker)
			}
			copied := testenv.SparseFile(t, 0)
			testenv.Run(t, "dd", "if="+drive, "of="+copied, "bs=1M", "conv=sparse", "status=none")
			if got := testenv.Run(t, "mtype", "-i", copied, "::openstack/latest/meta_data.json"); got != metaData {
				t.Errorf("meta_data.json: got %q, want %q", got, metaData)
			}
		})
	}
}

// A config drive that no system could mount on the disk, and that cannot be copied, is refused before anything is
// fetched or written.
func TestConfigDriveOfSmallBlocks(t *testing.T) {
	testenv.Programs(t, "mke2fs")
	ext4 := testenv.SparseFile(t, 2*mib)
	testenv.Run(t, "mke2fs", "-q", "-t", "ext4", "-b", "1024", "-L", "config-2", ext4)
	drive, err := os.ReadFile(ext4)
	if err != nil {
		t.Fatal(err)
	}
	disk, i := sectorDisk(t, 4096, false)
	before := bytes.Repeat([]byte("former "), mib)
	if err := os.WriteFile(disk, before, 0); err != nil {
		t.Fatal(err)
	}
	path := testenv.SparseFile(t, imageSize)
	s := serve(t, path)
	text := encodeDrive(t, drive)
	refused := func(what string, err error) {
		t.Helper()
		after := make([]byte, len(before))
		f, openErr := os.Open(disk)
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer f.Close() //nolint:errcheck // only read
		if _, err := f.ReadAt(after, 0); err != nil {
			t.Fatal(err)
		}
		if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "want at least the sector size 4096") ||
			s.downloads.Load() > 0 || !bytes.Equal(after, before) {
			t.Errorf("%s: got %v after %d downloads, want a DeploymentError after none, and the disk unchanged",
				what, err, s.downloads.Load())
		}
	}
	_, err = i.Prepare(t.Context(), rawImage(t, s.URL, path), text)
	refused("image", err)
	_, err = i.InstallContainer(t.Context(), BootableContainer{Source: "oci://127.0.0.1:1/image", ConfigDrive: text})
	refused("container", err)
}
