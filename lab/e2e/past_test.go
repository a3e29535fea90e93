//go:build linux

package e2e

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// bootable creates a disk that BIOS and UEFI boot, filled with random data. Its boot sector writes text to the first
// serial port and stops. Its EFI system partition contains a kernel at the path of the default loader.
func bootable(t *testing.T, text string, size int64) string {
	t.Helper()
	testenv.Programs(t, "sgdisk", "mformat", "mmd", "mcopy")
	path := file(t, "bootable", size, noise())
	patch(t, path, 0, make([]byte, mib))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+12M", "-t", "1:ef00", "-n", "2:13M:-1M", path)
	esp := path + "@@1M"
	testenv.Run(t, "mformat", "-i", esp, "-T", "24576", "-h", "1", "-s", "1", "::")
	testenv.Run(t, "mmd", "-i", esp, "::EFI", "::EFI/BOOT")
	testenv.Run(t, "mcopy", "-i", esp, testenv.Build(t, "ipa-ironroot-amd64.kernel"), "::EFI/BOOT/BOOTX64.EFI")
	patch(t, path, 0, bootCode(text))
	return path
}

// bootCode returns the code and the text of a boot sector.
func bootCode(text string) []byte {
	code := []byte{
		0xfa,       // cli
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0x20, 0x7c, // mov si, 0x7c20: the text
		0xba, 0xf8, 0x03, // mov dx, 0x3f8: the port
		0xfc,       // cld
		0xac,       // print: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz stop
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp print
		0xf4,       // stop: hlt
		0xeb, 0xfd, // jmp stop
	}
	return append(append(code, make([]byte, 0x20-len(code))...), text+"\n\x00"...)
}

// usedDisk creates a used disk: it boots, its second partition belonged to a volume group, and the whole disk to an
// array. wipefs and blkid find all of these.
func usedDisk(t *testing.T, size int64) string {
	t.Helper()
	path := bootable(t, "OLD SYSTEM", size)
	array := make([]byte, 4096) // superblock of version 0.90, 64 KiB before the end
	binary.LittleEndian.PutUint32(array, 0xa92b4efc)
	binary.LittleEndian.PutUint32(array[8:], 90)
	patch(t, path, size-64<<10, array)
	patch(t, path, 13*mib, append(make([]byte, 512), physicalVolume()...))
	if got := signatures(t, path); !strings.Contains(got, "linux_raid_member") || !strings.Contains(got, "gpt") {
		t.Fatalf("signatures of the used disk: got %q, want an array and a GPT", got)
	}
	second := []string{"-p", "-O", "13631488", "-S", "10485760", "-s", "TYPE", "-o", "value", path}
	if got := testenv.Run(t, "blkid", second...); !strings.Contains(got, "LVM2_member") {
		t.Fatalf("partition 2 of the used disk: got %q, want a physical volume", got)
	}
	return path
}

// physicalVolume returns the label of an LVM2 physical volume, which is in its second sector.
func physicalVolume() []byte {
	label := make([]byte, 512)
	copy(label, "LABELONE")
	binary.LittleEndian.PutUint64(label[8:], 1)
	binary.LittleEndian.PutUint32(label[20:], 32)
	copy(label[24:], "LVM2 001"+strings.Repeat("p", 32))
	const start = 0xf597a6cf
	binary.LittleEndian.PutUint32(label[16:], ^crc32.Update(^uint32(start), crc32.IEEETable, label[20:]))
	return label
}

// signatures returns the types that wipefs finds on a disk or in a file, one per line.
func signatures(t *testing.T, path string) string {
	t.Helper()
	testenv.Programs(t, "wipefs")
	return testenv.Run(t, "wipefs", "--no-act", "--noheadings", "--output", "TYPE", path)
}

// diskFile writes content to a sparse file and returns its path.
func diskFile(t *testing.T, path string, content []byte) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(content); at += mib {
		if piece := content[at:min(at+mib, len(content))]; !allZero(piece) {
			if _, err := f.WriteAt(piece, int64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path
}
