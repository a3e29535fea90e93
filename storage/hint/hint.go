// Package hint selects disks by root device hints: the little language of properties.root_device, with the operators
// of Ironic's extra_specs. All hints given must match.
package hint

import (
	"errors"

	"ironroot/storage/block"
)

// ErrNoDisk is what RootDisk's error wraps when no disk fits.
var ErrNoDisk = errors.New("no suitable disk")

// Hints holds parsed root device hints. Nil and empty hints match every disk.
type Hints map[string]any

// Parse checks raw hints as they stand in a node's JSON. Unknown names, values of a wrong type, empty expressions and
// sizes that are not positive integers are errors.
func Parse(raw map[string]any) (Hints, error) { return nil, errors.New("hint: not yet") }

// Match tells whether the disk fulfils every hint.
func (h Hints) Match(d block.Device) (bool, error) { return false, errors.New("hint: not yet") }

// Find returns all devices that match, in the order given.
func Find(h Hints, devices []block.Device) ([]block.Device, error) {
	return nil, errors.New("hint: not yet")
}

// RootDisk chooses the disk to install to: the first that matches the hints, or without hints the smallest of at
// least 4 GiB (equal sizes: by name). Its error wraps ErrNoDisk and names what was tried.
func RootDisk(h Hints, devices []block.Device) (block.Device, error) {
	return block.Device{}, errors.New("hint: not yet")
}
