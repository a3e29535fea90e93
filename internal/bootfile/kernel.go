package bootfile

import (
	"bytes"
	"compress/gzip"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"ironroot/internal/bounded"
)

// maxKernel limits the size of an unpacked kernel in bytes.
const maxKernel = 1 << 30

// gzipMagic begins a file that is compressed by gzip (RFC 1952).
const gzipMagic = "\x1f\x8b"

// Offsets in a bzImage (Linux, Documentation/arch/x86/boot.rst).
const (
	setupSectors = 0x1f1
	systemSize   = 0x1f4 // of the protected-mode kernel, in 16 bytes
	bootFlag     = 0x1fe
	setupMagic   = 0x202
	protocol     = 0x206
	setupEnd     = 0x210 // of the fields that are read here
)

// KernelArch returns the GOARCH of a kernel: amd64 for a file with the setup header of the Linux/x86 boot protocol,
// arm64 for an image with an EFI stub. Other files, truncated kernels, and files that differ from the checksum next to
// them are errors, and so are kernels that are compressed by gzip.
func KernelArch(path string) (string, error) {
	arch, packed, err := PackedKernelArch(path)
	if err == nil && packed {
		err = fmt.Errorf("kernel %s: is compressed by gzip, want an image with an EFI stub: decompress it first", path)
	}
	return arch, err
}

// PackedKernelArch does the same for a kernel that can be compressed by gzip, as GRUB and QEMU accept it for arm64.
// packed reports whether it is.
func PackedKernelArch(path string) (arch string, packed bool, err error) {
	arch, packed, err = readKernel(path)
	if err != nil {
		return "", packed, fmt.Errorf("kernel %s: %w", path, err)
	}
	return arch, packed, CheckSum(path)
}

func readKernel(path string) (arch string, packed bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close() //nolint:errcheck // only read
	head, err := readHead(f, int64(len(gzipMagic)))
	if err != nil {
		return "", false, err
	}
	if string(head) != gzipMagic {
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return "", false, err
		}
		arch, err = kernelArch(f, size)
		return arch, false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", true, err
	}
	content, err := unpackKernel(f)
	if err != nil {
		return "", true, fmt.Errorf("decompress: %w", err)
	}
	arch, err = kernelArch(bytes.NewReader(content), int64(len(content)))
	return arch, true, err
}

func unpackKernel(r io.Reader) ([]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	return bounded.ReadAll(z, maxKernel)
}

// kernelArch returns the GOARCH of a complete kernel of size bytes.
func kernelArch(r io.ReaderAt, size int64) (string, error) {
	head, err := readHead(io.NewSectionReader(r, 0, size), setupEnd)
	if err != nil {
		return "", err
	}
	isARM64 := len(head) > 0x3c && bytes.Equal(head[0x38:0x3c], []byte("ARM\x64"))
	isZboot := bytes.HasPrefix(head, []byte("MZ\x00\x00zimg")) // unpacks itself (CONFIG_EFI_ZBOOT)
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return "", errors.New("is an uncompressed ELF kernel, want a bzImage")
	case isARM64 || isZboot:
		arch, err := UEFIArch(r, size) // boot loaders start it as a UEFI program
		if err == nil && arch != "arm64" {
			err = fmt.Errorf("is for %s, want a bzImage or a kernel for arm64", arch)
		}
		return arch, err
	case len(head) < setupEnd || head[bootFlag] != 0x55 || head[bootFlag+1] != 0xaa:
		return "", errors.New("has no boot flag at byte 510, want a bzImage or a kernel for arm64")
	case !isBzImage(head):
		return "", fmt.Errorf("has %q at byte 514, want \"HdrS\" as a bzImage has", head[setupMagic:setupMagic+4])
	}
	if bytes.HasPrefix(head, []byte("MZ")) { // it has an EFI stub
		f, err := pe.NewFile(r)
		if err != nil {
			return "", fmt.Errorf("headers of its EFI stub: %w", err)
		}
		if err := checkSections(f, size); err != nil {
			return "", err
		}
	}
	return "amd64", checkBzImage(head, size)
}

func isBzImage(head []byte) bool {
	return len(head) >= setupEnd && string(head[setupMagic:setupMagic+4]) == "HdrS"
}

// checkBzImage returns an error if a file with the setup header of a bzImage is smaller than the header says. Before
// version 2.04 of the boot protocol, the size has only 16 of the bits that it needs.
func checkBzImage(head []byte, size int64) error {
	if !isBzImage(head) || binary.LittleEndian.Uint16(head[protocol:]) < 0x204 {
		return nil
	}
	setup := int64(head[setupSectors])
	if setup == 0 {
		setup = 4 // for backward compatibility
	}
	want := (1+setup)*512 + int64(binary.LittleEndian.Uint32(head[systemSize:]))*16
	if size < want {
		return fmt.Errorf("is truncated: has %d bytes, want %d by its setup header", size, want)
	}
	return nil
}

// UEFIArch returns the GOARCH of a UEFI program of size bytes, which a kernel with an EFI stub is, too. A truncated
// program is an error.
func UEFIArch(r io.ReaderAt, size int64) (string, error) {
	f, err := pe.NewFile(r)
	if err != nil {
		return "", fmt.Errorf("is not a UEFI program: %w", err)
	}
	if header, ok := f.OptionalHeader.(*pe.OptionalHeader64); !ok ||
		header.Subsystem != pe.IMAGE_SUBSYSTEM_EFI_APPLICATION {
		return "", errors.New("is not a UEFI program of 64 bits")
	}
	if err := checkSections(f, size); err != nil {
		return "", err
	}
	head, err := readHead(io.NewSectionReader(r, 0, size), setupEnd)
	if err != nil {
		return "", err
	}
	if err := checkBzImage(head, size); err != nil {
		return "", err
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

// checkSections returns an error if a program of size bytes ends before its sections or its signatures do (Microsoft
// PE Format, "Section Table" and "The Attribute Certificate Table").
func checkSections(f *pe.File, size int64) error {
	for _, s := range f.Sections {
		if end := int64(s.Offset) + int64(s.Size); size < end {
			return fmt.Errorf("is truncated: has %d bytes, want %d by section %s", size, end, s.Name)
		}
	}
	header, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok || header.NumberOfRvaAndSizes <= pe.IMAGE_DIRECTORY_ENTRY_SECURITY {
		return nil
	}
	signatures := header.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY] // its address is an offset in the file
	if end := int64(signatures.VirtualAddress) + int64(signatures.Size); size < end {
		return fmt.Errorf("is truncated: has %d bytes, want %d by its table of signatures", size, end)
	}
	return nil
}
