// Package tree reads the files of ISO 9660 and FAT file systems in the same way, without mounting them.
package tree

import (
	"errors"
	"io"

	"ironroot/storage/fat"
	"ironroot/storage/iso9660"
)

// ErrUnknown is returned if there is neither an ISO 9660 nor a FAT file system.
var ErrUnknown = errors.New("neither ISO 9660 nor FAT")

// Kind is the kind of a file system.
type Kind string

// The kinds of file systems.
const (
	ISO9660 Kind = "ISO 9660"
	FAT     Kind = "FAT"
)

// DamagedError is the error of a medium that cannot be read. Kind is the file system that was being looked for: it was
// recognised, unless reading its first sectors failed.
type DamagedError struct {
	Kind Kind
	Err  error
}

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// Tree is an open file system. It is not safe for concurrent use.
type Tree struct {
	Kind      Kind
	Label     string // "" if there is none
	Publisher string // publisher identifier of ISO 9660
	Size      int64  // bytes of an ISO 9660 volume
	LongNames bool   // ISO 9660 has complete file names, of Rock Ridge or Joliet
	Root      Node
}

// Open recognises the file system of a device or image. ISO 9660 comes first: the first 32 KiB of such a medium can
// have any content. The error is ErrUnknown, or a *DamagedError.
func Open(r io.ReaderAt) (*Tree, error) {
	iso, err := iso9660.Open(r)
	if err == nil {
		return &Tree{
			Kind: ISO9660, Label: iso.Label(), Publisher: iso.Publisher(), Size: iso.Size(),
			LongNames: iso.LongNames(), Root: isoNode(iso, iso.Root()),
		}, nil
	}
	if !errors.Is(err, iso9660.ErrNoISO) {
		return nil, &DamagedError{ISO9660, err}
	}
	f, err := fat.Open(r)
	if errors.Is(err, fat.ErrNoFAT) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, &DamagedError{FAT, err}
	}
	label, err := f.Label()
	if err != nil {
		return nil, &DamagedError{FAT, err}
	}
	return &Tree{Kind: FAT, Label: label, Root: fatNode(f, f.Root())}, nil
}
