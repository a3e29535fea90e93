package iso

import (
	"context"
	"errors"
	"io"
)

// DefaultLabel is the volume label of an image whose builder did not choose one.
const DefaultLabel = "INSTALL_IMAGE"

// DefaultCmdline is the kernel command line of an image whose builder did not choose one.
const DefaultCmdline = "boot_method=vmedia console=tty0 console=ttyS0,115200n8"

// Options describe the image to build.
type Options struct {
	Kernel   string // path of a bzImage
	Initrd   string // path of an initramfs, plain or compressed
	Out      string // path of the image to write
	Cmdline  string // "" = DefaultCmdline
	Label    string // "" = DefaultLabel
	CacheDir string // where fetched packages stay; "" = ironroot below the user's cache folder
	Log      io.Writer
}

// Report says what was built.
type Report struct {
	Path  string
	Size  int64 // bytes
	Parts []Part
}

// Part is a share of the image.
type Part struct {
	Name string
	Size int64 // bytes
}

// Build writes the image.
func Build(ctx context.Context, o Options) (Report, error) {
	return Report{}, errors.New("iso: not written yet")
}
