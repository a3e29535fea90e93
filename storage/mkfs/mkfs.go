// Package mkfs makes empty file systems and swap areas, as mke2fs, mkfs.xfs, mkfs.vfat and mkswap make them with the
// settings of Debian 12. Little is written however large the device is: what a file system lets its driver initialise
// later is left to it, and what must be zero is zeroed by the device where it can.
//
// Left out of ext4 are the blocks reserved for growing (resize_inode): resize2fs grows such a file system all the same.
// XFS has a log of 512 MiB at most, and no geometry of RAID stripes. Swap areas have pages of 4096 bytes.
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
)

// ErrUnsupported says that there is no code for a kind of file system. The error that wraps it names the kinds there are.
var ErrUnsupported = errors.New("file system cannot be made")

// Options are what a file system is given.
type Options struct {
	// Label is the volume label in UTF-8; "" for none. One that is too long for the kind is an error and is not cut.
	Label string
	// UUID in its usual form, for vfat the serial number as "1234-ABCD"; "" for a random one.
	UUID string
}

// kind is a kind of file system.
type kind struct {
	name     string
	maxLabel int // bytes
	min, max int64
	uuid     int // bytes
	make     func(context.Context, *device, volume) error
	label    func(string) error // what else a label must obey; nil for nothing
}

// volume is what all kinds are told.
type volume struct {
	kind  string
	label string
	uuid  []byte
}

func kinds() []kind {
	vfat := kind{name: "vfat", maxLabel: 11, uuid: 4, min: minVfat, max: math.MaxInt64, make: makeVfat, label: vfatLabel}
	msdos := vfat
	msdos.name = "msdos" // mkfs.msdos and mkfs.vfat are one program
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

// Make makes a file system of the given kind ("ext4", "ext3", "ext2", "xfs", "vfat", also as "msdos", or "swap") on a block
// device or in a file, which is held exclusively meanwhile. The first thing written removes what the device was recognised
// by, and the part by which the new file system is recognised follows after all else has reached the medium: an error or
// the end of ctx in between leaves a device that is nothing. An unknown kind gives an error that wraps [ErrUnsupported],
// and the device is not touched; nor is it for a label, a UUID or a size that does not fit.
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

// check finds the kind and looks whether it can have what is asked for.
func check(name string, o Options) (kind, volume, error) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		var names []string
		for _, k := range all {
			names = append(names, k.name)
		}
		return kind{}, volume{}, fmt.Errorf("%w, ask for one of %s", ErrUnsupported, strings.Join(names, ", "))
	}
	k := all[i]
	if len(o.Label) > k.maxLabel {
		return kind{}, volume{}, fmt.Errorf("label %q has %d bytes, at most %d fit", o.Label, len(o.Label), k.maxLabel)
	}
	if strings.ContainsRune(o.Label, 0) {
		return kind{}, volume{}, fmt.Errorf("label %q has a zero byte", o.Label)
	}
	if k.label != nil {
		if err := k.label(o.Label); err != nil {
			return kind{}, volume{}, err
		}
	}
	v := volume{kind: name, label: o.Label, uuid: make([]byte, k.uuid)}
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

// parseUUID reads a UUID or, of 4 bytes, the serial number of a FAT file system.
func parseUUID(text string, size int) ([]byte, error) {
	form := "01234567-0123-0123-0123-012345678901"
	if size == 4 {
		form = "0123-0123"
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != size || len(text) != len(form) || strings.LastIndexByte(text, '-') != strings.LastIndexByte(form, '-') {
		return nil, fmt.Errorf("UUID %q, want the form %s", text, form)
	}
	return raw, nil
}

// Check returns the error with which Make would refuse a kind of file system or its options, whatever the device.
func Check(name string, o Options) error {
	if _, _, err := check(name, o); err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return nil
}
