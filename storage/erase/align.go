package erase

import "unsafe"

// zerosSize is the maximum number of zeros in one write.
const zerosSize = 1 << 20

// alignedZeros returns zerosSize zeros at an address that direct I/O accepts.
func alignedZeros() []byte {
	const page = 4096
	raw := make([]byte, zerosSize+page)
	shift := (page - int(uintptr(unsafe.Pointer(&raw[0]))%page)) % page
	return raw[shift : shift+zerosSize]
}
