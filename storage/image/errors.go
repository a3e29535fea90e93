package image

import (
	"fmt"
	"time"
)

// DownloadError says that an image or a checksum file could not be fetched.
type DownloadError struct {
	URL    string // without credentials and query
	Status int    // HTTP status, 0 when there was no answer
	Err    error  // nil when Status says it all
	Fatal  bool   // neither a repetition nor another URL would have helped

	challenges []string // WWW-Authenticate of a 401
}

func (e *DownloadError) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("download %s: got HTTP status %d, want 200", e.URL, e.Status)
	case e.Status != 0 && e.Status != 200 && e.Status != 206:
		return fmt.Sprintf("download %s: HTTP status %d: %v", e.URL, e.Status, e.Err)
	}
	return fmt.Sprintf("download %s: %v", e.URL, e.Err)
}

func (e *DownloadError) Unwrap() error { return e.Err }

// TimeoutError says that all attempts together took longer than the maximum. It is final.
type TimeoutError struct {
	URL string // what was being fetched, without credentials and query
	Max time.Duration
	Err error // what was last seen; may be nil
}

func (e *TimeoutError) Error() string {
	text := fmt.Sprintf("download %s: took longer than the maximum of %v", e.URL, e.Max)
	if e.Err != nil {
		text += fmt.Sprintf(" (last error: %v)", e.Err)
	}
	return text
}

func (e *TimeoutError) Unwrap() error { return e.Err }

// Timeout makes the error a net.Error-like timeout.
func (e *TimeoutError) Timeout() bool { return true }

// ChecksumError says that an image was fetched in whole but is not the one that was asked for.
type ChecksumError struct {
	URL       string // without credentials and query
	Algorithm string
	Want, Got string // hexadecimal
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("image %s has the wrong checksum: got %s %s, want %s", e.URL, e.Algorithm, e.Got, e.Want)
}

// WriteError says that the device refused something.
type WriteError struct {
	Device string
	Op     string // "open", "write", "zero", "sync" ...
	Offset int64  // bytes, -1 where it means nothing
	Err    error
}

func (e *WriteError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s %s: %v", e.Op, e.Device, e.Err)
	}
	return fmt.Sprintf("%s %s at byte %d: %v", e.Op, e.Device, e.Offset, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// TooSmallError says that an image does not fit on the device.
type TooSmallError struct {
	Device string
	Size   int64 // bytes
	Need   int64 // bytes; where the server did not tell the length, the first byte too many
}

func (e *TooSmallError) Error() string {
	return fmt.Sprintf("%s is too small for the image: it has %d bytes, the image needs at least %d", e.Device, e.Size, e.Need)
}

// FormatError says that an image is not of a format that may or can be written. Where the refusal protects the node,
// the reason starts with "Security:".
type FormatError struct {
	Format string // the format concerned, "" when unknown
	Reason string
}

func (e *FormatError) Error() string { return e.Reason }
