package configdrive

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/planted"
	"ironroot/internal/test/testenv"
	"ironroot/storage/fat"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// fatDrive makes a config drive with mkfs.vfat and further arguments, with sectors of 512 bytes.
func fatDrive(t *testing.T, size int64, arguments ...string) []byte {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy")
	path, dir := testenv.SparseFile(t, size), t.TempDir()
	testenv.Run(t, "mkfs.vfat", append(arguments, "-n", "config-2", path)...)
	if err := os.MkdirAll(filepath.Join(dir, "openstack/latest"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "openstack/latest/meta_data.json"), []byte(metadata), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mcopy", "-s", "-i", path, filepath.Join(dir, "openstack"), "::/")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// checkRebuilt checks a partition with a rebuilt drive with other programs.
func checkRebuilt(t *testing.T, path string) {
	t.Helper()
	testenv.Programs(t, "fsck.vfat", "mtype", "blkid")
	testenv.Run(t, "fsck.vfat", "-n", path)
	for tag, want := range map[string]string{"LABEL": "CONFIG-2", "TYPE": "vfat"} {
		if got := strings.TrimSpace(testenv.Run(t, "blkid", "-p", "-s", tag, "-o", "value", path)); got != want {
			t.Errorf("blkid finds %s %q, want %q", tag, got, want)
		}
	}
	// mtools warns about block devices, so it gets a copy.
	image := filepath.Join(t.TempDir(), "image")
	testenv.Run(t, "dd", "if="+path, "of="+image, "bs=1M", "conv=sparse", "status=none")
	if got := testenv.Run(t, "mtype", "-i", image, "::/openstack/latest/meta_data.json"); got != metadata {
		t.Errorf("the drive's file holds %q, want %q", got, metadata)
	}
}

// verifyTable checks the disk's table with sgdisk or sfdisk.
func verifyTable(t *testing.T, device string) {
	t.Helper()
	table, err := partition.Read(context.Background(), device)
	if err != nil {
		t.Fatal(err)
	}
	if table.Scheme == partition.MBR {
		testenv.Run(t, "sfdisk", "--verify", device)
		return
	}
	if out := testenv.Run(t, "sgdisk", "-v", device); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk -v %s:\n%s", device, out)
	}
}

func TestWriteRebuilds(t *testing.T) {
	isoDrive := iso(t)
	gptTable, mbrTable := `sgdisk -n 1:0:+8M "$0"`, `printf 'label: dos\nstart=2048, size=2048\n' | sfdisk -q "$0"`
	small := fatDrive(t, 40*mib, "-F", "32", "-s", "1")[:4*mib] // FAT32 with fewer than 65525 clusters
	binary.LittleEndian.PutUint32(small[32:], 4*mib/512)
	for _, c := range []struct {
		name, table string
		sector      int
		drive       []byte
		o           Options
	}{
		{"ISO on 4K", gptTable, 4096, isoDrive, Options{}},
		{"FAT on 4K", gptTable, 4096, fatDrive(t, 4*mib), Options{}},
		{"small FAT32 on 4K", gptTable, 4096, small, Options{}},
		{"ISO on 4K with an MBR", mbrTable, 4096, isoDrive, Options{}},
		{"ISO by option", gptTable, 512, isoDrive, Options{Rebuild: true}},
		{"FAT by option with an MBR", mbrTable, 512, fatDrive(t, 4*mib), Options{Rebuild: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := loop(t, 200*mib, c.sector, c.table)
			path, err := Write(context.Background(), sysfs.Root{}, device, c.drive, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if path != device+"p2" {
				t.Errorf("written to %s, want the second partition", path)
			}
			checkRebuilt(t, path)
			verifyTable(t, device)
			first := content(t, path, mib)
			again, err := Write(context.Background(), sysfs.Root{}, device, c.drive, c.o)
			if err != nil || again != path || !bytes.Equal(content(t, path, mib), first) {
				t.Errorf("a second time: got %q, %v, want the same bytes in %s", again, err, path)
			}
		})
	}
}

// A drive that cannot be copied, or that is too large for its partition, is an error, and the table is not changed.
func TestRebuildRefuses(t *testing.T) {
	testenv.Programs(t, "genisoimage")
	dir := t.TempDir()
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	build := func(args ...string) []byte {
		out := filepath.Join(t.TempDir(), "iso")
		testenv.Run(t, "genisoimage", append(args, "-quiet", "-V", "config-2", "-o", out, dir)...)
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	device := loop(t, 200*mib, 512, `sgdisk -n 1:0:+8M "$0"`)
	before := content(t, device, mib)
	for name, c := range map[string]struct {
		drive []byte
		want  string
	}{
		"neither ISO nor FAT": {make([]byte, mib), "neither"},
		"symbolic link":       {build("-r"), "neither a directory nor a regular file"},
		"short names only":    {build("-input-charset=utf8"), "neither Rock Ridge nor Joliet"},
	} {
		_, err := Write(context.Background(), sysfs.Root{}, device, c.drive, Options{Rebuild: true})
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ErrUnreadable with %q", name, err, c.want)
		}
		if strings.Contains(err.Error(), `"link"`) {
			t.Errorf("%s: got %v, which names a file of the drive", name, err)
		}
	}
	if !bytes.Equal(content(t, device, mib), before) {
		t.Error("the table was changed")
	}
	testenv.Programs(t, "mke2fs")
	native := loop(t, 200*mib, 4096, `sgdisk -n 1:0:+8M "$0"`)
	before = content(t, native, mib)
	for block, want := range map[string]error{"1024": ErrUnreadable, "4096": nil} {
		ext4 := testenv.SparseFile(t, 2*mib)
		testenv.Run(t, "mke2fs", "-q", "-t", "ext4", "-L", "config-2", "-b", block, ext4)
		drive, err := os.ReadFile(ext4)
		if err != nil {
			t.Fatal(err)
		}
		device := native
		if want == nil {
			device = loop(t, 200*mib, 4096, `sgdisk -n 1:0:+8M "$0"`)
		}
		if _, err := Write(context.Background(), sysfs.Root{}, device, drive, Options{}); !errors.Is(err, want) {
			t.Errorf("ext4 with blocks of %s bytes: got %v, want %v", block, err, want)
		}
	}
	if !bytes.Equal(content(t, native, mib), before) {
		t.Error("the table was changed")
	}
	small := loop(t, 64*mib, 4096, `sgdisk -n 1:0:+256K "$0"`)
	if err := partition.Sync(context.Background(), sysfs.Root{}, small); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.vfat", "-n", "CONFIG-2", small+"p1")
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, mib), 0o600); err != nil {
		t.Fatal(err)
	}
	drive := build("-r")
	if _, err := Write(context.Background(), sysfs.Root{}, small, drive, Options{}); !errors.Is(err, fat.ErrFull) {
		t.Errorf("small partition: got %v, want ErrFull", err)
	}
}

// A damaged file system is an error that names its kind. It is not unknown content.
func TestOpenFilesFails(t *testing.T) {
	isoDrive := iso(t)
	blocks := bytes.Clone(isoDrive)
	copy(blocks[16*2048+128:], []byte{1, 0}) // logical block size
	for name, c := range map[string]struct {
		drive []byte
		want  string
	}{
		"empty":               {nil, "neither ISO 9660 nor FAT"},
		"blocks of one byte":  {blocks, "its ISO 9660 file system is damaged"},
		"truncated ISO 9660":  {isoDrive[:17*2048], "its ISO 9660 file system is damaged"},
		"FAT without its end": {fatDrive(t, 4*mib)[:1024], "its FAT file system is damaged"},
	} {
		_, err := openFiles(c.drive)
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want ErrUnreadable with %q", name, err, c.want)
		}
		if isUnknown := name == "empty"; errors.Is(err, errUnknown) != isUnknown {
			t.Errorf("%s: got %v, want the error of unknown content: %t", name, err, isUnknown)
		}
	}
}

func TestWriteLimits(t *testing.T) {
	drive := iso(t)
	write := func(device string, drive []byte) (string, error) {
		return Write(context.Background(), sysfs.Root{}, device, drive, Options{})
	}
	three := `label: dos\nstart=2048, size=2048\nstart=4096, size=2048\nstart=6144, size=2048\n`
	t.Run("65 MiB", func(t *testing.T) {
		device := loop(t, 200*mib, 512, `sgdisk -n 1:0:+8M "$0"`)
		before := content(t, device, mib)
		if _, err := write(device, append(drive, make([]byte, 65*mib-len(drive))...)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v, want ErrTooLarge", err)
		}
		if !bytes.Equal(content(t, device, mib), before) {
			t.Error("the table was changed")
		}
	})
	t.Run("64 MiB", func(t *testing.T) {
		device := loop(t, 200*mib, 512, `sgdisk -n 1:0:+8M "$0"`)
		full := append(bytes.Clone(drive), make([]byte, MaxSize-len(drive))...)
		path, err := write(device, full)
		if err != nil || !bytes.Equal(content(t, path, len(full)), full) {
			t.Errorf("got %v and other content, want the drive", err)
		}
		verifyTable(t, device)
	})
	t.Run("MBR with three primaries", func(t *testing.T) {
		device := loop(t, 200*mib, 512, `printf '`+three+`' | sfdisk -q "$0"`)
		path, err := write(device, drive)
		if err != nil || path != device+"p4" {
			t.Fatalf("got %q, %v, want the fourth partition", path, err)
		}
		if out := testenv.Run(t, "sfdisk", "--part-type", device, "4"); strings.TrimSpace(out) != "c" {
			t.Errorf("type %s, want c: FAT32", out)
		}
		verifyTable(t, device)
	})
	t.Run("MBR with four primaries", func(t *testing.T) {
		device := loop(t, 200*mib, 512, `printf '`+three+`start=8192, size=2048\n' | sfdisk -q "$0"`)
		before := content(t, device, mib)
		if _, err := write(device, drive); err == nil || !strings.Contains(err.Error(), "primary") {
			t.Errorf("got %v, want an error about primary partitions", err)
		}
		if !bytes.Equal(content(t, device, mib), before) {
			t.Error("the table was changed")
		}
	})
	t.Run("MBR on 3 TiB", func(t *testing.T) {
		device := loop(t, 3<<40, 512, `printf '`+three+`' | sfdisk -q "$0"`)
		path, err := write(device, drive)
		if err != nil {
			t.Fatal(err)
		}
		checkPlace(t, device, 4, 2<<40-mib)
		verifyTable(t, device)
		if !bytes.Equal(content(t, path, len(drive)), drive) {
			t.Errorf("%s does not hold the drive", path)
		}
	})
	t.Run("GPT on 3 TiB", func(t *testing.T) {
		device := loop(t, 3<<40, 512, `sgdisk -n 1:0:+8M "$0"`)
		if _, err := write(device, drive); err != nil {
			t.Fatal(err)
		}
		checkPlace(t, device, 2, 3<<40-33*512)
		verifyTable(t, device)
	})
}

// checkPlace fails the test unless a partition ends at end and has at least 64 MiB.
func checkPlace(t *testing.T, device string, number int, end int64) {
	t.Helper()
	table, err := partition.Read(context.Background(), device)
	if err != nil {
		t.Fatal(err)
	}
	p := table.Partitions[len(table.Partitions)-1]
	if p.Number != number || p.Start+p.Size != end || p.Size < MaxSize || p.Size > MaxSize+2*mib {
		t.Errorf("got %+v, want partition %d with 64 MiB up to byte %d", p, number, end)
	}
}

// An image with a GPT for 4K sectors, smaller than the disk: the backup is moved to the end of the disk before the
// partition for the drive is added.
func TestWriteRepairs4K(t *testing.T) {
	small := testenv.SparseFile(t, 64*mib)
	testenv.Programs(t, "sgdisk")
	testenv.Run(t, "sgdisk", "-n", "1:0:+8M", testenv.Loop(t, small, 4096))
	image, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	big := testenv.SparseFile(t, 300*mib)
	f, err := os.OpenFile(big, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(image); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	device := testenv.Loop(t, big, 4096)
	path, err := Write(context.Background(), sysfs.Root{}, device, iso(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkRebuilt(t, path)
	verifyTable(t, device)
	checkPlace(t, device, 2, 300*mib-5*4096)
}

// FuzzRebuild rebuilds drives with changed bytes. The copy always ends and stays within its partition.
func FuzzRebuild(f *testing.F) {
	var images []*planted.Image
	for kind, name := range []string{"media/fat12.img.gz", "media/xorriso.iso.gz"} {
		unzip, err := gzip.NewReader(bytes.NewReader(testenv.Data(f, name)))
		if err != nil {
			f.Fatal(err)
		}
		data, err := io.ReadAll(unzip)
		if err != nil {
			f.Fatal(err)
		}
		image := planted.New(data)
		images = append(images, image)
		f.Add(byte(kind), []byte{})
		for _, offset := range []int{0, 32768} { // the boot sector, the volume descriptor
			if bytes.Count(data[offset:offset+90], []byte{0}) < 60 {
				f.Add(byte(kind), image.Patch(offset, data[offset:offset+90]))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, patches []byte) {
		drive, err := io.ReadAll(io.NewSectionReader(images[int(kind)%len(images)].With(patches), 0, MaxSize))
		if err != nil {
			t.Fatal(err)
		}
		files, err := readFiles(drive)
		if err != nil {
			return
		}
		out := target(make([]byte, 2*mib))
		volume := fat.Volume{Size: int64(len(out)), Sector: 4096}
		if err := volume.Write(context.Background(), out, files, nil); err != nil {
			return
		}
		copied, err := fat.Open(bytes.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		if err := compare(context.Background(), copied, ".", files); err != nil {
			t.Error(err)
		}
	})
}

type target []byte

func (m target) WriteAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > int64(len(m)) {
		return 0, errors.New("beyond the end")
	}
	return copy(m[offset:], p), nil
}
