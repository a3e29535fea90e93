// Package bootfile checks the files that boot images are built from: kernels, initramfs archives, UEFI programs and
// kernel command lines. Otherwise a wrong or truncated file would only be noticed when the image boots.
package bootfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"ironroot/internal/bounded"
)

// CheckPair checks a kernel and its initramfs with [KernelArch] and [CheckInitrd]. A kernel for another architecture
// than arch, a GOARCH, is an error.
func CheckPair(arch, kernel, initrd string) error {
	got, err := KernelArch(kernel)
	if err != nil {
		return err
	}
	if got != arch {
		return fmt.Errorf("kernel %s: is for %s, want %s", kernel, got, arch)
	}
	return CheckInitrd(initrd)
}

// checksumSuffix is the end of the name of a file with the SHA-256 of another one, as ironroot image writes it.
const checksumSuffix = ".sha256"

// maxChecksum limits the size of a file with checksums, in bytes.
const maxChecksum = 1 << 20

// CheckSum compares a file with its checksum file, PATH.sha256. It returns an error if no word in that is the SHA-256
// of the file, and nil if there is no checksum file.
func CheckSum(path string) error {
	text, err := bounded.ReadFile(path+checksumSuffix, maxChecksum)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	isSum := func(word string) bool { return strings.EqualFold(word, sum) }
	if !slices.ContainsFunc(strings.Fields(string(text)), isSum) {
		return fmt.Errorf("%s: has SHA-256 %s, want the one in %s: %.100q", path, sum, path+checksumSuffix, text)
	}
	return nil
}

// readHead returns the first bytes of a file, at most size.
func readHead(r io.Reader, size int64) ([]byte, error) {
	head, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return nil, err
	}
	if len(head) == 0 {
		return nil, errors.New("is empty")
	}
	return head, nil
}

// maxCmdline is the length of the longest command line in bytes: COMMAND_LINE_SIZE of x86 without the final zero.
const maxCmdline = 2047

// CheckCmdline returns an error for a command line that a boot loader's configuration or the kernel cannot contain.
func CheckCmdline(line string) error {
	if len(line) > maxCmdline {
		return fmt.Errorf("kernel command line has %d characters, want at most %d", len(line), maxCmdline)
	}
	for _, c := range line {
		if c < ' ' || c == 0x7f {
			return fmt.Errorf("kernel command line %q has a control character", line)
		}
	}
	if strings.Count(line, `"`)%2 != 0 {
		return fmt.Errorf("kernel command line %q has an open quote", line)
	}
	return nil
}
