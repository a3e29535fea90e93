package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ironroot/storage/image/qcow2"
	"ironroot/storage/image/unpack"
)

// The names that code refers to. Ironic uses the same ones.
const (
	formatRaw   = "raw"
	formatGPT   = "gpt"
	formatQcow2 = "qcow2"
)

// format is a format of image files.
type format struct {
	name string // as Ironic spells it
	// detect reports whether a file that begins with head, its first MiB, is of this format.
	detect func(head []byte) bool
	// check refuses a file that would put the node at risk. nil accepts all.
	check func(head []byte) error
	// checkEnd refuses a file for its last endSize bytes. nil accepts all.
	checkEnd func(head, end []byte) error
	// open prepares to write an image. It is nil if the format cannot be written.
	open func(ctx context.Context, a *attempt) (content, error)
	// copied is set if open copies the file to the device as it is.
	copied bool
	// compressed is set if the file is a compressed image of a format that is copied.
	compressed bool
	// refusal completes "images of format NAME" for a format that cannot be written, in place of the usual text.
	refusal string
	driver  string // QEMU's name of a format that cannot be written
}

// formats returns all known formats. The last one matches every file that no other format detects.
func formats() []format {
	list := []format{
		{name: formatQcow2, detect: at(0, qcow2.Magic), check: checkQcow2, open: openQcow2},
		{name: "qed", detect: at(0, "QED\x00"), check: checkQED, driver: "qed"},
		{name: "vhd", detect: at(0, vhdCookie), driver: "vpc"},
		{name: "vhdx", detect: at(0, "vhdxfile"), driver: "vhdx"},
		{name: "vmdk", detect: detectVMDK, check: checkVMDK, checkEnd: checkVMDKFooter, driver: "vmdk"},
		{name: "vdi", detect: at(0x40, "\x7f\x10\xda\xbe"), driver: "vdi"},
		{
			name: "luks", detect: at(0, "LUKS\xba\xbe"), check: checkLUKS,
			refusal: "are encrypted as a whole: no firmware boots them; declare the image as raw to have it " +
				"copied as it is",
		},
		{name: "iso", detect: detectISO, open: openRaw, copied: true},
		{name: formatGPT, detect: detectGPT, check: checkGPT, open: openRaw, copied: true},
	}
	for _, f := range unpack.Formats {
		list = append(list, format{name: f.Name, detect: f.Detect, open: openCompressed(f), compressed: true})
	}
	return append(list, format{
		name: formatRaw, detect: func([]byte) bool { return false }, open: openRaw, copied: true,
	})
}

// findFormat returns the format with that name, or one that cannot be written.
func findFormat(name string) format {
	all := formats()
	if i := slices.IndexFunc(all, func(f format) bool { return f.name == name }); i >= 0 {
		return all[i]
	}
	return format{name: name}
}

// at returns a detect function for a signature at a fixed offset.
func at(off int, magic string) func([]byte) bool {
	return func(head []byte) bool {
		return len(head) >= off+len(magic) && string(head[off:off+len(magic)]) == magic
	}
}

// detect returns the names of all formats that detect a file with this beginning.
func detect(head []byte) []string {
	var found []string
	for _, f := range formats() {
		if !f.detect(head) {
			continue
		}
		// Compressed data has the signature of an MBR by chance, once in 65,536 files, but never a valid table.
		if i := slices.Index(found, formatGPT); f.compressed && i >= 0 && checkMBR(head) != "" {
			found = slices.Delete(found, i, i+1)
		}
		found = append(found, f.name)
	}
	return found
}

// FormatError means that an image is not of a format that may or can be written. If the refusal protects the node, the
// reason starts with "Security:".
type FormatError struct {
	Format string // the format concerned, "" when unknown
	Reason string
}

func (e *FormatError) Error() string { return e.Reason }

// security returns a refusal that protects the node.
func security(format, reason string, args ...any) error {
	return &FormatError{Format: format, Reason: "Security: " + fmt.Sprintf(reason, args...)}
}

// declaredFormat returns the declared format of an image as Ironic spells it, and reports whether there is one.
func declaredFormat(text string) (format string, known bool) {
	format = strings.ToLower(text)
	return format, format != "" && format != "unknown"
}

// inspect returns the format of an image with this beginning, and refuses an image that must not be written. end has
// the last bytes of the file, or is nil if they are unknown.
func (o Options) inspect(declared string, head, end []byte) (string, error) {
	declared, known := declaredFormat(declared)
	found := detect(head)
	if o.SkipFormatInspection && known {
		return declared, findFormat(declared).writable()
	}
	if len(found) > 1 {
		return "", security(declared, "the image can be taken for more than one format (%s)", strings.Join(found, ", "))
	}
	f := findFormat(formatRaw)
	if len(found) == 1 {
		f = findFormat(found[0])
	}
	if o.SkipFormatInspection {
		return f.name, f.writable()
	}
	if f.copied && endsFixedVHD(end) {
		f = fixedVHD()
	}
	if f.check != nil {
		if err := f.check(head); err != nil {
			return "", err
		}
	}
	if f.checkEnd != nil && end != nil {
		if err := f.checkEnd(head, end); err != nil {
			return "", err
		}
	}
	if !f.compressed { // the content of a compressed image is inspected as well
		if err := o.permit(f); err != nil {
			return "", err
		}
	}
	if known && declared != f.name {
		return "", security(f.name, "the image was declared as %s, but its content is %s", declared, f.name)
	}
	return f.name, f.writable()
}

// permit returns an error unless an image may have this format.
func (o Options) permit(f format) error {
	if o.PermittedFormats == nil || slices.Contains(o.PermittedFormats, f.name) {
		return nil
	}
	reason := fmt.Sprintf("image format %s is not permitted (permitted: %s)",
		f.name, strings.Join(o.PermittedFormats, ", "))
	if err := f.writable(); err != nil { // it would not help to permit it
		reason += "; " + err.Error()
	}
	return security(f.name, "%s", reason)
}

// writable returns an error if images of the format cannot be written.
func (f format) writable() error {
	if f.open != nil {
		return nil
	}
	if f.refusal != "" {
		return &FormatError{Format: f.name, Reason: fmt.Sprintf("images of format %s %s", f.name, f.refusal)}
	}
	var names []string
	for _, other := range slices.Backward(formats()) {
		if !other.compressed && other.open != nil {
			names = append(names, other.name)
		}
	}
	last := len(names) - 1
	return &FormatError{Format: f.name, Reason: fmt.Sprintf(
		"images of format %s cannot be written to a disk, only %s and %s: convert it by %s",
		f.name, strings.Join(names[:last], ", "), names[last], f.conversion())}
}

// conversion returns the command that converts an image of the format to one that can be written.
func (f format) conversion() string {
	if f.driver == "" {
		return "`qemu-img convert -O qcow2`"
	}
	return fmt.Sprintf("`qemu-img convert -f %s -O qcow2`", f.driver)
}
