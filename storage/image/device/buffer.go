package device

import (
	"unsafe"
)

// Align is the alignment in bytes of offsets, lengths and addresses that O_DIRECT accepts on every device.
const Align = 4096

// NewBuffer returns n bytes that are aligned for O_DIRECT.
func NewBuffer(n int) []byte { return alignedTo(Align, n) }

// NewHugeBuffer returns n bytes that are aligned for O_DIRECT, on huge pages if there are some: to fill, hash and
// write them takes fewer look-ups in page tables.
func NewHugeBuffer(n int) []byte {
	const hugePage = 2 << 20
	b := alignedTo(hugePage, n)
	preferHugePages(b)
	return b
}

func alignedTo(align, n int) []byte {
	b := make([]byte, n+align)
	skip := int(-addressOf(b) % uintptr(align))
	return b[skip : skip+n : skip+n]
}

// isAligned reports whether p is aligned for O_DIRECT.
func isAligned(p []byte) bool { return addressOf(p)%Align == 0 }

// addressOf returns the address of p. The garbage collector does not move it.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
