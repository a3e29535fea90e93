package erase

import "unsafe"

// alignedZeros returns a MiB of zeros at an address that direct I/O accepts.
func alignedZeros() []byte {
	const size, page = 1 << 20, 4096
	raw := make([]byte, size+page)
	shift := (page - int(uintptr(unsafe.Pointer(&raw[0]))%page)) % page
	return raw[shift : shift+size]
}
