package device

import "fmt"

// WriteError means that an operation on the device failed.
type WriteError struct {
	Device string
	Op     string // "open", "write", "zero", "sync" ...
	Offset int64  // bytes, -1 if the operation has none
	Err    error
}

func (e *WriteError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s %s: %v", e.Op, e.Device, e.Err)
	}
	return fmt.Sprintf("%s %s at byte %d: %v", e.Op, e.Device, e.Offset, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// TooSmallError means that an image does not fit on the device.
type TooSmallError struct {
	Device string
	Size   int64 // bytes
	Need   int64 // bytes, at least: the length may be unknown
}

func (e *TooSmallError) Error() string {
	return fmt.Sprintf("%s is too small for the image: it has %d bytes, the image needs at least %d",
		e.Device, e.Size, e.Need)
}
