// Package bootfile checks the files that boot images are built from: kernels, initramfs archives, UEFI programs and
// kernel command lines. Otherwise a wrong file would only be noticed when the image boots.
package bootfile

import (
	"bytes"
	"debug/pe"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// KernelArch returns the GOARCH of a kernel: amd64 for a file with the setup header of the Linux/x86 boot protocol,
// arm64 for an image with an EFI stub. Other files are errors.
func KernelArch(path string) (string, error) {
	const (
		bootFlag = 0x1fe
		magic    = 0x202
	)
	head, err := readHead(path, 0x210)
	if err != nil {
		return "", fmt.Errorf("kernel %s: %w", path, err)
	}
	isARM64 := len(head) > 0x3c && bytes.Equal(head[0x38:0x3c], []byte("ARM\x64"))
	isZboot := bytes.HasPrefix(head, []byte("MZ\x00\x00zimg")) // unpacks itself (CONFIG_EFI_ZBOOT)
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		err = errors.New("is an uncompressed ELF kernel, want a bzImage")
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		err = errors.New("is compressed by gzip, want an image with an EFI stub: decompress it first")
	case isARM64 || isZboot:
		return uefiKernelArch(path)
	case len(head) < 0x210 || head[bootFlag] != 0x55 || head[bootFlag+1] != 0xaa:
		err = errors.New("has no boot flag at byte 510, want a bzImage or a kernel for arm64")
	case string(head[magic:magic+4]) != "HdrS":
		err = fmt.Errorf("has %q at byte 514, want \"HdrS\" as a bzImage has", head[magic:magic+4])
	default:
		return "amd64", nil
	}
	return "", fmt.Errorf("kernel %s: %w", path, err)
}

// uefiKernelArch returns the GOARCH of a kernel that is not a bzImage. Its boot loaders start it as a UEFI program.
func uefiKernelArch(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("kernel: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	arch, err := UEFIArch(f)
	if err == nil && arch != "arm64" {
		err = fmt.Errorf("is for %s, want a bzImage or a kernel for arm64", arch)
	}
	if err != nil {
		return "", fmt.Errorf("kernel %s: %w", path, err)
	}
	return arch, nil
}

// CheckInitrd returns an error for a file that does not begin like a cpio archive, plain or in a compression that the
// kernel supports.
func CheckInitrd(path string) error {
	head, err := readHead(path, 6)
	if err != nil {
		return fmt.Errorf("initrd %s: %w", path, err)
	}
	for _, magic := range []string{
		"070701", "070702", // cpio, newc and crc
		"\x1f\x8b",         // gzip
		"BZh",              // bzip2
		"\x5d\x00\x00",     // lzma
		"\xfd7zXZ\x00",     // xz
		"\x89LZO",          // lzop
		"\x02\x21\x4c\x18", // lz4, the kernel's old frame
		"\x28\xb5\x2f\xfd", // zstd
	} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return nil
		}
	}
	return fmt.Errorf("initrd %s: begins with %q, want a cpio archive, plain or compressed with gzip, bzip2, lzma, "+
		"xz, lzo, lz4 or zstd", path, head)
}

func readHead(path string, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	head, err := io.ReadAll(io.LimitReader(f, size))
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

// UEFIArch returns the GOARCH of a UEFI program, which a kernel with an EFI stub is, too.
func UEFIArch(r io.ReaderAt) (string, error) {
	f, err := pe.NewFile(r)
	if err != nil {
		return "", fmt.Errorf("is not a UEFI program: %w", err)
	}
	if header, ok := f.OptionalHeader.(*pe.OptionalHeader64); !ok ||
		header.Subsystem != pe.IMAGE_SUBSYSTEM_EFI_APPLICATION {
		return "", errors.New("is not a UEFI program of 64 bits")
	}
	switch f.Machine {
	case pe.IMAGE_FILE_MACHINE_AMD64:
		return "amd64", nil
	case pe.IMAGE_FILE_MACHINE_ARM64:
		return "arm64", nil
	}
	return "", fmt.Errorf("is for machine type 0x%x, want 0x%x (x86-64) or 0x%x (arm64)",
		f.Machine, pe.IMAGE_FILE_MACHINE_AMD64, pe.IMAGE_FILE_MACHINE_ARM64)
}
