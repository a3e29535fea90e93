package erase

import "unsafe"

// zerosSize is the number of bytes that one write of zeros has at most.
const zerosSize = 1 << 20

// alignedZeros returns zerosSize zeros at an address that direct I/O accepts.
func alignedZeros() []byte {
	const page = 4096
	raw := make([]byte, zerosSize+page)
	shift := (page - int(uintptr(unsafe.Pointer(&raw[0]))%page)) % page
	return raw[shift : shift+zerosSize]
}
