package uki

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"

	"ironroot/internal/bootfile"
)

// kernel describes a kernel image that is a UEFI program itself.
type kernel struct {
	arch    string // GOARCH
	release string // as uname -r prints it, "" if the image does not show it
	nx      bool   // works if the firmware makes data not executable
	sbat    []byte
}

// maxRelease limits the length of a kernel's release in bytes.
const maxRelease = 128

// textRelease matches the release in the text of an uncompressed kernel.
var textRelease = regexp.MustCompile(`Linux version (\d\.\S{1,120}) \(`)

// parseKernel parses a kernel with an EFI stub: a bzImage, an arm64 Image, or a compressed kernel that unpacks itself.
func parseKernel(data []byte) (kernel, error) {
	if len(data) > 2 && data[0] == 0x1f && data[1] == 0x8b {
		return kernel{}, errors.New("is compressed by gzip, want an image with an EFI stub: decompress it first")
	}
	arch, err := bootfile.UEFIArch(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return kernel{}, fmt.Errorf("is no kernel with an EFI stub (CONFIG_EFI_STUB): %w", err)
	}
	f, err := pe.NewFile(bytes.NewReader(data))
	if err != nil {
		return kernel{}, err
	}
	header, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return kernel{}, errors.New("is not a PE32+ file")
	}
	k := kernel{arch: arch}
	k.nx = header.DllCharacteristics&nxCompat != 0
	for _, s := range f.Sections {
		start, end := int64(s.Offset), int64(s.Offset)+int64(min(s.Size, s.VirtualSize))
		if s.Name == sbatSection && end <= int64(len(data)) {
			k.sbat = data[start:end]
		}
	}
	if k.release = headerRelease(data); k.release == "" {
		if match := textRelease.FindSubmatch(data); match != nil {
			k.release = string(match[1])
		}
	}
	return k, nil
}

// headerRelease returns the release in the setup header of the Linux/x86 boot protocol, "" without such a header.
func headerRelease(data []byte) string {
	const (
		magic   = 0x202
		version = 0x20e // offset of the text, from byte 0x200
	)
	if len(data) < 0x210 || string(data[magic:magic+4]) != "HdrS" {
		return ""
	}
	start := 0x200 + int(binary.LittleEndian.Uint16(data[version:]))
	if start >= len(data) {
		return ""
	}
	text := data[start:min(start+maxRelease, len(data))]
	release, _, found := bytes.Cut(text, []byte(" "))
	if !found || bytes.ContainsFunc(release, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return string(release)
}
