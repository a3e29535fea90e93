//go:build linux

package rig

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// DiskSize leaves data between the areas that erasing metadata overwrites at both ends of disk and partition.
const DiskSize = 48 * MiB

// OldText fills disks that were used before.
var OldText = []byte("content of old! ")

// BootFrom starts a machine that boots from the disks in their order.
func BootFrom(t *testing.T, disks []string, c qemu.Config) *qemu.Machine {
	t.Helper()
	c.Dir, c.CPUs = t.TempDir(), 1
	for i, path := range disks {
		c.Disks = append(c.Disks, qemu.Disk{File: path, Boot: i + 1})
	}
	m, err := qemu.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	return m
}

// MBRID is the disk id at byte 440 of the images that MBRImage creates.
const MBRID = 0xfeedc0de

// File creates a file of size bytes in a directory of the test, with content from fill.
func File(t *testing.T, name string, size int64, fill io.Reader) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if fill == nil {
		err = f.Truncate(size)
	} else {
		_, err = io.CopyN(f, fill, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Noise returns random data, the same on every run.
func Noise() io.Reader { return rand.NewChaCha8([32]byte{'e', '2', 'e'}) }

// OldContent is the endless content of a disk that was used before.
type OldContent struct{}

func (OldContent) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 0xa5
	}
	return len(p), nil
}

// MBRImage creates a disk image with an MBR, one partition and random data.
func MBRImage(t *testing.T, name string, size int64) string {
	t.Helper()
	path := File(t, name, size, Noise())
	sector := make([]byte, 512)
	binary.LittleEndian.PutUint32(sector[440:], MBRID)
	entry := sector[446:]
	entry[0], entry[4] = 0x80, 0x83
	binary.LittleEndian.PutUint32(entry[8:], 2048)
	binary.LittleEndian.PutUint32(entry[12:], uint32(size/512-2048))
	sector[510], sector[511] = 0x55, 0xaa
	Patch(t, path, 0, sector)
	return path
}

// Patch writes data to a file at an offset.
func Patch(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(data, at); err != nil {
		t.Fatal(err)
	}
}

// Read returns a range of a file.
func Read(t *testing.T, path string, at, length int64) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, length)
	if _, err := f.ReadAt(data, at); err != nil {
		t.Fatalf("%s at %d: %v", path, at, err)
	}
	return data
}

// Sum returns the SHA-256 of length bytes of a file in hex.
func Sum(t *testing.T, path string, at, length int64) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if n, err := io.Copy(h, io.NewSectionReader(f, at, length)); err != nil || n != length {
		t.Fatalf("%s: read %d bytes at %d, want %d: %v", path, n, at, length, err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// SizeOf returns the size of a file.
func SizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// SumAll returns the SHA-256 of a file in hex.
func SumAll(t *testing.T, path string) string {
	t.Helper()
	return Sum(t, path, 0, SizeOf(t, path))
}

// SoundGPT fails the test if sgdisk finds errors in the GPT of a disk.
func SoundGPT(t *testing.T, disk string) {
	t.Helper()
	if out := testenv.Run(t, "sgdisk", "-v", disk); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk finds problems:\n%s", out)
	}
}

// AllZero reports whether all bytes are zero.
func AllZero(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }

// BootableDisk creates a disk that BIOS and UEFI boot, filled with random data. Its boot sector writes text to the
// first serial port and stops. Its EFI system partition contains a kernel at the path of the default loader.
func BootableDisk(t *testing.T, text string, size int64) string {
	t.Helper()
	testenv.Programs(t, "sgdisk", "mformat", "mmd", "mcopy")
	path := File(t, "bootable", size, Noise())
	Patch(t, path, 0, make([]byte, MiB))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+12M", "-t", "1:ef00", "-n", "2:13M:-1M", path)
	esp := path + "@@1M"
	testenv.Run(t, "mformat", "-i", esp, "-T", "24576", "-h", "1", "-s", "1", "::")
	testenv.Run(t, "mmd", "-i", esp, "::EFI", "::EFI/BOOT")
	testenv.Run(t, "mcopy", "-i", esp, testenv.Build(t, "ipa-ironroot-amd64.kernel"), "::EFI/BOOT/BOOTX64.EFI")
	Patch(t, path, 0, bootCode(text))
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

// Signatures returns the types that wipefs finds on a disk or in a file, one per line.
func Signatures(t *testing.T, path string) string {
	t.Helper()
	testenv.Programs(t, "wipefs")
	return testenv.Run(t, "wipefs", "--no-act", "--noheadings", "--output", "TYPE", path)
}

// DiskFile writes content to a sparse file and returns its path.
func DiskFile(t *testing.T, path string, content []byte) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(content); at += MiB {
		if piece := content[at:min(at+MiB, len(content))]; !AllZero(piece) {
			if _, err := f.WriteAt(piece, int64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path
}
