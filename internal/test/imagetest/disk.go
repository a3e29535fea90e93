package imagetest

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

const mib = 1 << 20

// RandomBytes returns n random bytes, the same for the same seed.
func RandomBytes(seed uint64, n int) []byte {
	data := make([]byte, n)
	fillRandomly(data, seed)
	return data
}

func fillRandomly(data []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(data) //nolint:errcheck // never fails
}

// UsedDisk returns the name of a file that represents a disk with data: every byte is 0xA5.
func UsedDisk(t testing.TB, size int) string {
	t.Helper()
	name := filepath.Join(MemoryDir(t), "disk")
	testenv.Fill(t, name, 0, int64(size), "\xa5")
	return name
}

// MemoryDir returns a directory in memory, for tests with hundreds of small disks: on this machine's disk they would be
// slow.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ironroot-image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// ReadAt returns n bytes at off of a file, or fewer where the file ends.
func ReadAt(t testing.TB, name string, off int64, n int) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	data := make([]byte, n)
	if _, err := f.ReadAt(data, off); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return data
}

// MustNotBoot fails unless the first and the last MiB of a disk are zero.
func MustNotBoot(t testing.TB, disk string) {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, max(0, size-mib)} {
		if len(bytes.Trim(ReadAt(t, disk, off, int(min(mib, size-off))), "\x00")) > 0 {
			t.Errorf("%s has content within the MiB at %d, want zeros", disk, off)
		}
	}
}

// MustBeUntouched fails unless every byte of a used disk is unchanged.
func MustBeUntouched(t testing.TB, disk string) {
	t.Helper()
	if data := testenv.Content(t, disk); data[0] != 0xa5 || !bytes.Equal(data[1:], data[:len(data)-1]) {
		t.Errorf("%s was written to", disk)
	}
}

// Log returns a log that is written to the output of the test.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Difference returns the offset of the first byte that differs, and reports whether a and b are equal.
func Difference(a, b []byte) (int, bool) {
	if bytes.Equal(a, b) {
		return len(a), true
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i, false
		}
	}
	return min(len(a), len(b)), len(a) == len(b)
}

// DiskContent returns the content of a disk: random, repeated and zero parts of various lengths up to stretch bytes.
func DiskContent(seed uint64, size, stretch int) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	data := make([]byte, size)
	for rest := data; len(rest) > 0; {
		part := rest[:min(r.IntN(stretch)+1, len(rest))]
		switch r.IntN(3) {
		case 1:
			fillRandomly(part, r.Uint64())
		case 2:
			for n := copy(part, "compressible"); n < len(part); n *= 2 {
				copy(part[n:], part[:n])
			}
		}
		rest = rest[len(part):]
	}
	return data
}

// IsA reports whether err is or wraps an E.
func IsA[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// Pack returns the output of a compression program for data on its standard input.
func Pack(t testing.TB, data []byte, command string) []byte {
	t.Helper()
	args := strings.Fields(command)
	testenv.Programs(t, args[0])
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...) //nolint:forbidigo // only tests call it
	var out, message bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &message
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, message.Bytes())
	}
	return out.Bytes()
}
