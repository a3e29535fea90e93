package mkfs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"ironroot/storage/fat"
)

// ErrUnsupported is returned for an unsupported kind of file system. Errors that wrap it name the supported kinds.
var ErrUnsupported = errors.New("file system cannot be made")

// Options are the options of Make.
type Options struct {
	// Label is the volume label in UTF-8; "" for none. A label that is too long for the kind is an error.
	Label string
	// UUID in its usual form, for vfat the serial number as "1234-ABCD"; "" means a random one.
	UUID string
	// Files are the content of a vfat file system. With another kind they are an error.
	Files []fat.Node
}

// kind describes a kind of file system.
type kind struct {
	name     string
	maxLabel int   // bytes
	min, max int64 // size of the device in bytes
	uuid     int   // bytes
	make     func(context.Context, *device, volume) error
	label    func(string) error // further checks of a label; nil for none
}

// volume holds the parameters of a new file system.
type volume struct {
	kind  string
	label string
	uuid  []byte
	files []fat.Node
}

func kinds() []kind {
	vfat := kind{
		name: "vfat", maxLabel: 11, uuid: 4, min: minVfat, max: math.MaxInt64, make: makeVfat, label: vfatLabel,
	}
	msdos := vfat
	msdos.name = "msdos" // mkfs.msdos and mkfs.vfat are the same program
	return []kind{
		{name: "ext4", maxLabel: 16, uuid: 16, min: minExt, max: maxExt4, make: makeExt},
		{name: "ext3", maxLabel: 16, uuid: 16, min: minExt, max: maxExt3, make: makeExt},
		{name: "ext2", maxLabel: 16, uuid: 16, min: minExt, max: maxExt3, make: makeExt},
		{name: "xfs", maxLabel: 12, uuid: 16, min: minXFS, max: maxXFS, make: makeXFS},
		vfat,
		msdos,
		{name: "swap", maxLabel: 15, uuid: 16, min: minSwap, max: math.MaxInt64, make: makeSwap},
	}
}

// Make makes a file system of the given kind on a block device or in a file, which it opens exclusively. Kinds are
// "ext4", "ext3", "ext2", "xfs", "vfat" (also as "msdos") and "swap".
//
// It first removes old signatures from the device, and writes the signature of the new file system last, after all
// other writes have reached the medium. After an error or the end of ctx in between, the device has no signature. For
// an unknown kind the error wraps [ErrUnsupported]. The device is not written in this case, or if a label, a UUID or
// the size is not valid.
func Make(ctx context.Context, path, name string, o Options) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make %s on %s: %w", name, path, err)
		}
	}()
	k, v, err := check(name, o)
	if err != nil {
		return err
	}
	d, err := openDevice(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if d.size < k.min || d.size > k.max {
		return fmt.Errorf("the device has %d bytes, want %d to %d", d.size, k.min, k.max)
	}
	if err := d.clear(ctx); err != nil {
		return err
	}
	return k.make(ctx, d, v)
}

// check finds the kind and validates the options.
func check(name string, o Options) (kind, volume, error) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		var names []string
		for _, k := range all {
			names = append(names, k.name)
		}
		return kind{}, volume{}, fmt.Errorf("%w, use one of %s", ErrUnsupported, strings.Join(names, ", "))
	}
	k := all[i]
	if len(o.Label) > k.maxLabel {
		return kind{}, volume{}, fmt.Errorf("label %q: got %d bytes, want at most %d",
			o.Label, len(o.Label), k.maxLabel)
	}
	if strings.ContainsRune(o.Label, 0) {
		return kind{}, volume{}, fmt.Errorf("label %q contains a zero byte", o.Label)
	}
	if k.label != nil {
		if err := k.label(o.Label); err != nil {
			return kind{}, volume{}, err
		}
	}
	if len(o.Files) > 0 && name != "vfat" {
		return kind{}, volume{}, errors.New("only vfat can be made with files")
	}
	v := volume{kind: name, label: o.Label, uuid: make([]byte, k.uuid), files: o.Files}
	if o.UUID != "" {
		var err error
		v.uuid, err = parseUUID(o.UUID, k.uuid)
		return k, v, err
	}
	rand.Read(v.uuid) //nolint:errcheck // never fails
	if k.uuid == 16 { // RFC 9562: version 4
		v.uuid[6], v.uuid[8] = v.uuid[6]&0x0f|0x40, v.uuid[8]&0x3f|0x80
	}
	return k, v, nil
}

// parseUUID parses a UUID or, with a size of 4 bytes, the serial number of a FAT file system.
func parseUUID(text string, size int) ([]byte, error) {
	form := "01234567-0123-0123-0123-012345678901"
	if size == 4 {
		form = "0123-0123"
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != size || len(text) != len(form) ||
		strings.LastIndexByte(text, '-') != strings.LastIndexByte(form, '-') {
		return nil, fmt.Errorf("UUID: got %q, want the form %s", text, form)
	}
	return raw, nil
}

// Check returns the error that Make would return for a kind of file system or its options on any device.
func Check(name string, o Options) error {
	if _, _, err := check(name, o); err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return nil
}
