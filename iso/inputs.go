package iso

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// checkInputs returns an error for files that are not a kernel or an initramfs. Otherwise a wrong path would only be
// noticed when the image boots.
func checkInputs(kernel, initrd string) error {
	if err := checkKernel(kernel); err != nil {
		return fmt.Errorf("kernel %s: %w", kernel, err)
	}
	if err := checkInitrd(initrd); err != nil {
		return fmt.Errorf("initrd %s: %w", initrd, err)
	}
	return nil
}

// checkKernel checks for the setup header of the Linux/x86 boot protocol.
func checkKernel(path string) error {
	const (
		bootFlag = 0x1fe
		magic    = 0x202
	)
	head, err := readHead(path, 0x210)
	if err != nil {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return errors.New("is an uncompressed ELF kernel, want a bzImage")
	case len(head) > 0x3c && bytes.Equal(head[0x38:0x3c], []byte("ARM\x64")):
		return errors.New("is an arm64 kernel, want one for x86-64")
	case len(head) < 0x210 || head[bootFlag] != 0x55 || head[bootFlag+1] != 0xaa:
		return errors.New("has no boot flag at byte 510, want a bzImage")
	case string(head[magic:magic+4]) != "HdrS":
		return fmt.Errorf("has %q at byte 514, want \"HdrS\" as a bzImage has", head[magic:magic+4])
	}
	return nil
}

// checkInitrd checks for the start of a cpio archive, plain or in a compression that the kernel supports.
func checkInitrd(path string) error {
	head, err := readHead(path, 6)
	if err != nil {
		return err
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
	return fmt.Errorf("begins with %q, want a cpio archive, plain or compressed with gzip, bzip2, lzma, xz, lzo, "+
		"lz4 or zstd", head)
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

// checkLabel checks the d-characters and the length of a volume identifier (ECMA-119, 7.4.1 and 8.4.7). Lower case
// and the hyphen are allowed too, because they are common.
func checkLabel(label string) error {
	const longest = 32
	if len(label) > longest {
		return fmt.Errorf("label %q has %d characters, want at most %d", label, len(label), longest)
	}
	for _, c := range label {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return fmt.Errorf("label %q has a %q, want letters, digits, _ and -", label, c)
		}
	}
	return nil
}

// checkCmdline returns an error for a command line that a boot loader's configuration or the kernel cannot contain.
func checkCmdline(line string) error {
	const longest = 2047 // x86: COMMAND_LINE_SIZE is 2048 with the final zero
	if len(line) > longest {
		return fmt.Errorf("kernel command line has %d characters, want at most %d", len(line), longest)
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
