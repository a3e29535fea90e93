// Package configdrive fetches a config drive and puts it into a partition labelled config-2 at the end of a disk.
package configdrive

import (
	"context"
	"errors"
	"io"

	"ironroot/storage/block"
)

// MaxSize is the greatest config drive that is accepted, in bytes, after decompression.
const MaxSize = 64 << 20

// Opener opens a URL for reading; an HTTP status of 400 and above is an error.
type Opener func(ctx context.Context, url string) (io.ReadCloser, error)

// Load returns the config drive's image. The source is the base64 text of gzip data, or an http or https URL whose
// body is such a text or the image itself.
func Load(ctx context.Context, source string, open Opener) ([]byte, error) {
	return nil, errors.New("configdrive: not yet")
}

// Write writes the drive to the disk's partition labelled config-2, which is made at the end of the disk where there
// is none, and returns the partition's device path.
func Write(ctx context.Context, sys block.System, disk string, drive []byte) (partitionPath string, err error) {
	return "", errors.New("configdrive: not yet")
}
