package testenv

import "encoding/binary"

// BzImage returns a file of at least 1 KiB that has no more of a kernel for x86-64 than its setup header, and an
// endless loop as its first instruction (Linux, Documentation/arch/x86/boot.rst).
func BzImage(size int) []byte {
	const setup = 1024
	kernel := make([]byte, size)
	kernel[0x1f1] = setup/512 - 1
	binary.LittleEndian.PutUint32(kernel[0x1f4:], uint32((size-setup)/16))
	copy(kernel[0x1fe:], "\x55\xaa\xeb\xfeHdrS\x0f\x02")
	return kernel
}
