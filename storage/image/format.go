package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"ironroot/storage/image/qcow2"
)

// The names that code refers to. Ironic uses the same ones.
const (
	formatRaw   = "raw"
	formatGPT   = "gpt"
	formatQcow2 = "qcow2"
	formatISO   = "iso"
)

// detectors find the formats that show themselves within the first MiB of a file. What none of them knows is raw.
var detectors = []struct {
	name  string
	match func(head []byte) bool
}{
	{formatQcow2, at(0, qcow2.Magic)},
	{"qed", at(0, "QED\x00")},
	{"vhd", at(0, "conectix")},
	{"vhdx", at(0, "vhdxfile")},
	{"vmdk", func(head []byte) bool { return at(0, "KDMV")(head) || at(0, "# Disk DescriptorFile")(head) }},
	{"vdi", at(0x40, "\x7f\x10\xda\xbe")},
	{"luks", at(0, "LUKS\xba\xbe")},
	{formatISO, func(head []byte) bool {
		return at(0x8001, "CD001")(head) || at(0x8001, "NSR02")(head) || at(0x8001, "NSR03")(head)
	}},
	{formatGPT, func(head []byte) bool { return at(510, "\x55\xaa")(head) && !isFAT(head) }},
}

// at returns a match of magic at a fixed offset.
func at(off int, magic string) func([]byte) bool {
	return func(head []byte) bool {
		return len(head) >= off+len(magic) && string(head[off:off+len(magic)]) == magic
	}
}

// isFAT reports whether a sector that ends like an MBR is the boot sector of a FAT file system.
func isFAT(head []byte) bool {
	jump := head[0] == 0xe9 || head[0] == 0xeb && head[2] == 0x90
	sector := binary.LittleEndian.Uint16(head[11:])
	return jump && sector >= 512 && sector <= 4096 && sector&(sector-1) == 0 && (head[16] == 1 || head[16] == 2) && head[21] >= 0xf0
}

// detect returns the names of all formats that a file with this beginning could be taken for.
func detect(head []byte) []string {
	var found []string
	for _, d := range detectors {
		if d.match(head) {
			found = append(found, d.name)
		}
	}
	for _, p := range packings {
		if !p.match(head) {
			continue
		}
		// In packed data the signature of an MBR stands by accident once in 65,536 times; a whole table never does.
		if i := slices.Index(found, formatGPT); i >= 0 && checkMBR(head) != "" {
			found = slices.Delete(found, i, i+1)
		}
		found = append(found, p.name)
	}
	return found
}

// security is a refusal that protects the node.
func security(format, reason string, args ...any) error {
	return &FormatError{Format: format, Reason: "Security: " + fmt.Sprintf(reason, args...)}
}

// inspect decides what an image with this beginning is, and refuses what must not be written.
func (o Options) inspect(declared string, head []byte) (string, error) {
	declared = strings.ToLower(declared)
	known := declared != "" && declared != "unknown"
	found := detect(head)
	if o.SkipFormatInspection && known {
		return declared, o.writable(declared)
	}
	if len(found) > 1 {
		return "", security(declared, "the image can be taken for more than one format (%s)", strings.Join(found, ", "))
	}
	format := formatRaw
	if len(found) == 1 {
		format = found[0]
	}
	if o.SkipFormatInspection {
		return format, o.writable(format)
	}
	if err := safe(format, head); err != nil {
		return "", err
	}
	if packingOf(format) == nil && !o.permits(format) {
		return "", o.forbidden(format)
	}
	if known && declared != format {
		return "", security(format, "the image was declared as %s, but its content is %s", declared, format)
	}
	return format, o.writable(format)
}

// permits reports whether an image may have this format.
func (o Options) permits(format string) bool {
	return o.PermittedFormats == nil || slices.Contains(o.PermittedFormats, format)
}

func (o Options) forbidden(format string) error {
	return security(format, "image format %s is not permitted (permitted: %s)", format, strings.Join(o.PermittedFormats, ", "))
}

func (o Options) writable(format string) error {
	switch format {
	case formatRaw, formatGPT, formatISO, formatQcow2:
		return nil
	case "luks":
		return &FormatError{Format: format, Reason: "images of format luks are encrypted as a whole: no firmware boots them; declare the image as raw to have it copied as it is"}
	}
	if packingOf(format) != nil {
		return nil
	}
	return &FormatError{Format: format, Reason: fmt.Sprintf(
		"images of format %s cannot be written to a disk, only raw, gpt, iso and qcow2: convert it by `qemu-img convert -O qcow2`", format)}
}

// safe applies the checks of one format.
func safe(format string, head []byte) error {
	switch format {
	case formatQcow2:
		if _, err := qcow2.ParseHeader(head); err != nil {
			return qcowRefusal(err)
		}
	case "qed":
		return security(format, "images of format qed are never allowed")
	case "vmdk":
		if reason := checkVMDK(head); reason != "" {
			return security(format, "vmdk image: %s", reason)
		}
	case "luks":
		if len(head) < 8 || binary.BigEndian.Uint16(head[6:]) != 1 {
			return security(format, "luks image: the version is not 1")
		}
	case formatGPT:
		if reason := checkMBR(head); reason != "" {
			return security(format, "partition table of the image: %s", reason)
		}
	}
	return nil
}

// checkMBR returns what is suspicious about the partition table in the first sector.
func checkMBR(head []byte) string {
	partitions := 0
	for i := range 4 {
		entry := head[446+16*i:][:16]
		kind := entry[4]
		if kind == 0 {
			continue
		}
		partitions++
		if entry[0] != 0 && entry[0] != 0x80 {
			return fmt.Sprintf("entry %d has a boot flag that is neither 0 nor 0x80", i+1)
		}
		if kind != 0xee {
			continue
		}
		if i != 0 {
			return fmt.Sprintf("the protective entry is entry %d, want 1", i+1)
		}
		if !bytes.Equal(entry[1:4], []byte{0, 2, 0}) || binary.LittleEndian.Uint32(entry[8:]) != 1 {
			return "the protective entry does not begin at block 1"
		}
		if !isZero(head[446+16 : 510]) {
			return "there are more entries beside the protective one"
		}
	}
	if partitions == 0 {
		return "it has no partition"
	}
	return ""
}

// checkVMDK returns what is suspicious about the descriptor of a VMware image: only images in one file pass.
func checkVMDK(head []byte) string {
	const descriptorAt, maxDescriptor = 512, 64 << 10
	if !at(0, "KDMV")(head) || len(head) < descriptorAt {
		return "it consists of a descriptor that names other files"
	}
	if binary.LittleEndian.Uint64(head[56:]) == 1<<64-1 {
		return "its tables lie in a footer"
	}
	if binary.LittleEndian.Uint64(head[28:]) != descriptorAt/512 {
		return "its descriptor is not where it should be"
	}
	size := min(binary.LittleEndian.Uint64(head[36:])*512, maxDescriptor, uint64(len(head)-descriptorAt))
	descriptor := strings.ToLower(string(bytes.TrimRight(head[descriptorAt:][:size], "\x00")))
	extents, single := 0, false
	for line := range strings.Lines(descriptor) {
		line = strings.TrimSpace(line)
		key, value, assigned := strings.Cut(line, "=")
		access, _, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "ddb"):
		case assigned && !strings.Contains(strings.TrimSpace(key), " "):
			value = strings.Trim(strings.TrimSpace(value), `"`)
			single = single || strings.TrimSpace(key) == "createtype" && (value == "monolithicsparse" || value == "streamoptimized")
		case access == "rw" || access == "rdonly" || access == "noaccess":
			extents++
			if strings.Contains(line, "/") {
				return "an extent is a path"
			}
		default:
			return "its descriptor has a line that nobody knows"
		}
	}
	if !single || extents == 0 {
		return "it is neither monolithicSparse nor streamOptimized"
	}
	return ""
}
