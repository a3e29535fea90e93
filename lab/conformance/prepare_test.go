//go:build linux

package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The functions of this file write to the files of disks, before a machine starts or before a scenario.

func sequence(steps ...func(string) error) func(string) error {
	return func(path string) error {
		for _, step := range steps {
			if err := step(path); err != nil {
				return err
			}
		}
		return nil
	}
}

func sized(size int64) func(string) error {
	return func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(f.Truncate(size), f.Close())
	}
}

// run runs a program with a text as its input.
func run(input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func write(path string, at int64, data []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Close())
}

// sfdisk makes a partition table.
func sfdisk(script string) func(string) error {
	return func(path string) error { return run(script, "sfdisk", "-q", path) }
}

// makeFS makes a file system on a whole disk.
func makeFS(kind string) func(string) error { return makeFSAt(kind, 0, 0) }

// makeFSAt makes a file system in a range of a disk. length 0 means up to its end.
func makeFSAt(kind string, offset, length int64) func(string) error {
	return func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if length == 0 {
			length = info.Size() - offset
		}
		dir, err := os.MkdirTemp("", "fs")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // temporary
		file := filepath.Join(dir, "fs")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, length)); err != nil {
			return err
		}
		switch kind {
		case "ext4":
			err = run("", "mke2fs", "-q", "-F", "-t", "ext4", "-L", "former", file)
		case "vfat":
			err = run("", "mkfs.vfat", "-n", "FORMER", file)
		case "swap":
			err = run("", "mkswap", file)
		default:
			err = run("", "mkfs."+kind, "-q", file)
		}
		if err != nil {
			return err
		}
		return run("", "dd", "if="+file, "of="+path, "conv=notrunc,sparse", "bs=64k", "oflag=seek_bytes",
			fmt.Sprintf("seek=%d", offset))
	}
}

// gpt makes a GPT on a small disk, with a partition of 8 MiB for each content, but the last one, which has the rest.
func gpt(contents ...string) func(string) error {
	return func(path string) error {
		script := "label: gpt\n"
		for range contents[1:] {
			script += "size=16384\n"
		}
		if err := sequence(sized(smallDiskSize), sfdisk(script+"type=linux\n"))(path); err != nil {
			return err
		}
		for i, content := range contents {
			offset, length := int64(1+8*i)*mib, int64(8*mib)
			if i == len(contents)-1 {
				length = smallDiskSize - mib - offset
			}
			make := makeFSAt(content, offset, length)
			if content == "planted" {
				make = func(path string) error { return plant(path, offset, length) }
			}
			if err := make(path); err != nil {
				return err
			}
		}
		return nil
	}
}

// gpt4096 makes a GPT for sectors of 4096 bytes with a planted partition.
func gpt4096(path string) error {
	image := withGPT(nil, smallDiskSize, 4096, []gptPartition{{linuxType, diskUUID, "former", mib, 8 * mib}})
	return errors.Join(write(path, 0, image[:mib]), write(path, smallDiskSize-mib, image[smallDiskSize-mib:]),
		plant(path, mib, 8*mib))
}

// backupGPT leaves the backup of a GPT only.
func backupGPT(path string) error {
	return errors.Join(gpt("ext4", "planted")(path), write(path, 0, make([]byte, 34*512)))
}

// primaryGPT leaves the primary table only.
func primaryGPT(path string) error {
	return errors.Join(gpt("ext4", "planted")(path), write(path, smallDiskSize-33*512, make([]byte, 33*512)))
}

// protectiveMBR leaves the MBR of a GPT only.
func protectiveMBR(path string) error {
	return errors.Join(primaryGPT(path), write(path, 512, make([]byte, 33*512)))
}

// dosTable makes an MBR from a script of sfdisk, and fills the partition with the number plantedAt with the planted
// text.
func dosTable(script string, plantedAt int) func(string) error {
	return func(path string) error {
		err := sfdisk("label: dos\n" + script)(path)
		if err != nil {
			return err
		}
		t, err := readTable(path, 512)
		if err != nil {
			return err
		}
		for _, p := range t.Partitions {
			if p.Number == plantedAt {
				err = errors.Join(err, plant(path, p.Start*512, p.Size*512))
			}
		}
		return err
	}
}

// partitioned makes a GPT with a partition of memberSize at 1 MiB, and then does more.
func partitioned(more func(string) error) func(string) error {
	return sequence(func(path string) error {
		return run("label: gpt\nsize=49152, type=linux\n", "sfdisk", "-q",
			path)
	}, more)
}

// makeISO makes a file system of ISO 9660.
func makeISO(path string) error {
	dir, err := os.MkdirTemp("", "iso")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	iso := filepath.Join(dir, "iso")
	if err := run("", "genisoimage", "-quiet", "-V", "FORMER", "-o", iso, dir); err != nil {
		return err
	}
	return run("", "dd", "if="+iso, "of="+path, "conv=notrunc")
}

// physicalVolume writes the label of a physical volume of LVM.
func physicalVolume(at int64) func(string) error {
	return func(path string) error {
		label := make([]byte, 512)
		copy(label, "LABELONE")
		binary.LittleEndian.PutUint64(label[8:], 1) // sector
		binary.LittleEndian.PutUint32(label[20:], 32)
		copy(label[24:], "LVM2 001")
		copy(label[32:], "abcdefghijklmnopqrstuvwxyz012345")
		// LVM's checksum is the CRC-32 of IEEE with another start value and without the final inversion.
		binary.LittleEndian.PutUint32(label[16:], ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, label[20:]))
		return write(path, at+512, label)
	}
}

// luks writes the start of a header of LUKS.
func luks(version uint16) func(string) error {
	return func(path string) error {
		header := make([]byte, 4096)
		copy(header, "LUKS\xba\xbe")
		binary.BigEndian.PutUint16(header[6:], version)
		copy(header[168:], "0f385b3f-3a4c-46d9-8d62-8e1f8594dba8")
		return write(path, 0, header)
	}
}

// zfs writes the uberblocks of ZFS's first and last labels.
func zfs(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	const label = 256 << 10
	uberblock := make([]byte, 1024)
	binary.LittleEndian.PutUint64(uberblock, 0x00bab10c)
	binary.LittleEndian.PutUint64(uberblock[8:], 5000)
	for _, at := range []int64{0, label, info.Size() - 2*label, info.Size() - label} {
		for i := range int64(8) {
			if err := write(path, at+128<<10+i*1024, uberblock); err != nil {
				return err
			}
		}
	}
	return nil
}

// memberSize is the size of the members to which the superblocks of testdata/md belong.
const memberSize = 24 * mib

// member writes a superblock of software RAID.
func member(name string, at int64) func(string) error {
	return func(path string) error {
		superblock, err := os.ReadFile(filepath.Join("..", "..", "testdata", "md", name))
		if err != nil {
			return err
		}
		return write(path, at, superblock)
	}
}

// blank makes a disk all zeros.
func blank(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing is buffered
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, info.Size())
}

// used fills the parts of a disk with planted data that a former tenant's partition table and file systems use.
func used(path string) error {
	if err := blank(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := plant(path, 0, min(10*mib, info.Size()/2)); err != nil {
		return err
	}
	return plant(path, info.Size()-mib, mib)
}
