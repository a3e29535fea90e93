//go:build linux

package e2e

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
)

// mbrID is the disk id at byte 440 of the images that mbrImage creates.
const mbrID = 0xfeedc0de

// file creates a file of size bytes in a directory of the test, with content from fill.
func file(t *testing.T, name string, size int64, fill io.Reader) string {
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

// noise returns random data, the same on every run.
func noise() io.Reader { return rand.NewChaCha8([32]byte{'e', '2', 'e'}) }

// old is the endless content of a disk that was used before.
type old struct{}

func (old) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 0xa5
	}
	return len(p), nil
}

// mbrImage creates a disk image with an MBR, one partition and random data.
func mbrImage(t *testing.T, name string, size int64) string {
	t.Helper()
	path := file(t, name, size, noise())
	sector := make([]byte, 512)
	binary.LittleEndian.PutUint32(sector[440:], mbrID)
	entry := sector[446:]
	entry[0], entry[4] = 0x80, 0x83
	binary.LittleEndian.PutUint32(entry[8:], 2048)
	binary.LittleEndian.PutUint32(entry[12:], uint32(size/512-2048))
	sector[510], sector[511] = 0x55, 0xaa
	patch(t, path, 0, sector)
	return path
}

// gptImage creates a disk image with a GPT, two partitions and random data.
func gptImage(t *testing.T, name string, size int64) string {
	t.Helper()
	testenv.Programs(t, "sgdisk")
	path := file(t, name, size, noise())
	patch(t, path, 0, make([]byte, mib))
	patch(t, path, size-mib, make([]byte, mib))
	testenv.Run(t, "sgdisk", "-n", "1:1M:+8M", "-t", "1:ef00", "-c", "1:first", "-n", "2:9M:0", "-c", "2:second", path)
	return path
}

func patch(t *testing.T, path string, at int64, data []byte) {
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

// read returns a range of a file.
func read(t *testing.T, path string, at, length int64) []byte {
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

// sum returns the SHA-256 of length bytes of a file in hex.
func sum(t *testing.T, path string, at, length int64) string {
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

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// sumAll returns the SHA-256 of a file in hex.
func sumAll(t *testing.T, path string) string {
	t.Helper()
	return sum(t, path, 0, sizeOf(t, path))
}

// soundGPT fails the test if sgdisk finds errors in the GPT of a disk.
func soundGPT(t *testing.T, disk string) {
	t.Helper()
	if out := testenv.Run(t, "sgdisk", "-v", disk); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk finds problems:\n%s", out)
	}
}

// zero reports whether the first MiB of a file contains only zeros.
func zero(t *testing.T, path string) bool {
	t.Helper()
	return allZero(read(t, path, 0, mib))
}

func allZero(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }
