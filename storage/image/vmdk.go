package image

import (
	"bytes"
	"encoding/binary"
	"strings"

	"ironroot/internal/ondisk"
)

// vmdkHeader is the header of a hosted sparse extent, and its copy in the footer of a stream-optimized one (VMware,
// "Virtual Disk Format 5.0", section "Hosted Sparse Extents"), in little endian. Offsets and sizes are in sectors of
// 512 bytes. Padding follows.
type vmdkHeader struct {
	Magic            [4]byte
	Version          uint32
	Flags            uint32
	Capacity         uint64
	GrainSize        uint64
	DescriptorOffset uint64
	DescriptorSize   uint64
	EntriesPerTable  uint32
	RedundantOffset  uint64
	DirectoryOffset  uint64 // of the grain directory, vmdkAtEnd if only the footer knows it
}

// vmdkMarker is a marker of a stream-optimized extent (section "Stream-Optimized Compressed Sparse Extents").
type vmdkMarker struct {
	Value   uint64
	Size    uint32
	Type    uint32
	Padding [496]byte
}

const (
	vmdkMagic      = "KDMV" // of a hosted sparse extent
	vmdkESXMagic   = "COWD" // of a sparse extent of ESX Server
	vmdkAtEnd      = 1<<64 - 1
	vmdkFooterMark = 3
	vmdkFooterSize = 3 * 512 // a marker, the footer, and the marker of the end of the stream
)

// detectVMDK reports whether a file is a VMware image or the descriptor of one.
func detectVMDK(head []byte) bool {
	return at(0, vmdkMagic)(head) || at(0, vmdkESXMagic)(head) || isVMDKDescriptor(head)
}

// isVMDKDescriptor reports whether a file is text that describes a VMware image. Programs do not require the comment
// in its first line.
func isVMDKDescriptor(head []byte) bool {
	const comment = "# Disk DescriptorFile"
	const sample = 512 // bytes that must be text if there is no comment
	if bytes.EqualFold(head[:min(len(head), len(comment))], []byte(comment)) {
		return true
	}
	text, _, _ := bytes.Cut(head, []byte{0})
	for _, c := range text[:min(len(text), sample)] {
		if (c < ' ' || c > '~') && !strings.ContainsRune("\t\n\v\f\r", rune(c)) {
			return false
		}
	}
	return bytes.Contains(bytes.ToLower(text), []byte("createtype"))
}

// checkVMDK refuses an image that consists of several files.
func checkVMDK(head []byte) error {
	if at(0, vmdkESXMagic)(head) {
		return nil // it has no descriptor
	}
	if reason := checkDescriptor(head); reason != "" {
		return security("vmdk", "vmdk image: %s", reason)
	}
	return nil
}

// checkDescriptor returns what is suspicious about the descriptor of a VMware image: only images in one file are
// accepted.
func checkDescriptor(head []byte) string {
	const descriptorAt, maxDescriptor = 512, 64 << 10
	if !at(0, vmdkMagic)(head) || len(head) < descriptorAt {
		return "it consists of a descriptor that names other files"
	}
	header := ondisk.Decode[vmdkHeader](head, binary.LittleEndian)
	if header.DescriptorOffset != descriptorAt/512 {
		return "its descriptor is not where it should be"
	}
	size := min(header.DescriptorSize*512, maxDescriptor, uint64(len(head)-descriptorAt))
	// The descriptor ends with its first NUL: qemu-img leaves the end of a longer one after it.
	text, _, _ := bytes.Cut(head[descriptorAt:][:size], []byte{0})
	descriptor := strings.ToLower(string(text))
	extents, single := 0, false
	for line := range strings.Lines(descriptor) {
		line = strings.TrimSpace(line)
		key, value, assigned := strings.Cut(line, "=")
		access, _, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "ddb"):
		case assigned && !strings.Contains(strings.TrimSpace(key), " "):
			value = strings.Trim(strings.TrimSpace(value), `"`)
			single = single || strings.TrimSpace(key) == "createtype" &&
				(value == "monolithicsparse" || value == "streamoptimized")
		case access == "rw" || access == "rdonly" || access == "noaccess":
			extents++
			if strings.Contains(line, "/") {
				return "an extent is a path"
			}
		default:
			return "its descriptor has an unknown line"
		}
	}
	if !single || extents == 0 {
		return "it is neither monolithicSparse nor streamOptimized"
	}
	return ""
}

// checkVMDKFooter refuses an image whose footer is not the one that its header announces. Programs use the footer
// instead of the header.
func checkVMDKFooter(head, end []byte) error {
	if !at(0, vmdkMagic)(head) || len(head) < binary.Size(vmdkHeader{}) {
		return nil
	}
	header := ondisk.Decode[vmdkHeader](head, binary.LittleEndian)
	if header.DirectoryOffset != vmdkAtEnd {
		return nil
	}
	if reason := checkFooter(header, end); reason != "" {
		return security("vmdk", "vmdk image: %s", reason)
	}
	return nil
}

// checkFooter returns what is suspicious about the footer at the end of a VMware image.
func checkFooter(header vmdkHeader, end []byte) string {
	if len(end) < vmdkFooterSize {
		return "its footer is missing"
	}
	end = end[len(end)-vmdkFooterSize:]
	mark := ondisk.Decode[vmdkMarker](end, binary.LittleEndian)
	footer := ondisk.Decode[vmdkHeader](end[512:], binary.LittleEndian)
	last := ondisk.Decode[vmdkMarker](end[1024:], binary.LittleEndian)
	mark.Value = 0 // the number of sectors, which not every program writes
	switch {
	case mark != vmdkMarker{Type: vmdkFooterMark}, last != vmdkMarker{}:
		return "its footer has no valid marker"
	case footer.DirectoryOffset == vmdkAtEnd:
		return "its footer names another footer"
	case footer.Magic != header.Magic, footer.Version != header.Version,
		footer.DescriptorOffset != header.DescriptorOffset, footer.DescriptorSize != header.DescriptorSize:
		return "its footer contradicts its header"
	}
	return ""
}
