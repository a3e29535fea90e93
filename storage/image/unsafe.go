package image

import "unsafe"

// addressOf returns where the bytes of p lie, for the alignment that O_DIRECT asks for. The garbage collector does not
// move them.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
