// Package ondisk converts between structures of fixed size and their bytes on a medium, and has those that several
// packages need. A buffer that is too short for the structure is a mistake of the caller and causes a panic: silently,
// it would lose the whole structure. So does a structure without a fixed size.
package ondisk

import "encoding/binary"

// Encode writes a structure to the start of raw.
func Encode(raw []byte, order binary.ByteOrder, structure any) {
	if _, err := binary.Encode(raw, order, structure); err != nil {
		panic(err)
	}
}

// Append appends a structure to raw.
func Append(raw []byte, order binary.ByteOrder, structure any) []byte {
	raw, err := binary.Append(raw, order, structure)
	if err != nil {
		panic(err)
	}
	return raw
}

// Decode reads a structure from the start of raw.
func Decode[T any](raw []byte, order binary.ByteOrder) (structure T) {
	if _, err := binary.Decode(raw, order, &structure); err != nil {
		panic(err)
	}
	return structure
}
