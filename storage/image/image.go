package image

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// Source describes where an image comes from and what it must be.
type Source struct {
	URLs     []fetch.URL  // tried in order
	Format   string       // "raw", "qcow2", ...; "" or "unknown" if not declared
	Checksum checksum.Sum // of the file on the server; mandatory
	Fetch    fetch.Options
}

// Options are the options of a Write.
type Options struct {
	Progress *Progress    // may be nil
	Log      *slog.Logger // may be nil
	// PermittedFormats lists the formats that an inspected image may have. nil permits every format that can be
	// written. An empty list permits no image, not even one that is declared as raw. Compressed images require raw in
	// the list.
	PermittedFormats []string
	// SkipFormatInspection disables the comparison of the declared with the detected format, the checks of gpt images
	// and of the end of a file. References of an image to other files are refused nevertheless.
	SkipFormatInspection bool
	// UnpackMemory is the number of bytes that the window or dictionary of a compressed image may need. A smaller
	// value, such as 0, stands for 32 MiB.
	UnpackMemory int64
	// DiskSectorSize is the size of the disk's logical sectors in bytes if the image is for a whole disk: its first
	// sector must then be a boot sector. 0 means a partition or an unknown size; nothing is checked.
	DiskSectorSize int64
}

// Report describes what Write has written.
type Report struct {
	URL         string // of the image, without credentials and query
	Format      string // "raw" or "qcow2"; "gpt" and "iso" are copied as raw and reported by their name
	Compression string // name of the compression format, "" if the file is not compressed
	Bytes       int64  // length of the file on the server
	Written     int64  // bytes of content written to the device
	Size        int64  // virtual size of the image in bytes
	Resumed     int    // connections that resumed after a lost one
	Checksum    checksum.Sum
	Duration    time.Duration
}

// Write streams an image to a block device, or to a file of fixed size, and returns after everything has reached the
// medium.
//
// Errors are or wrap *fetch.DownloadError, *fetch.TimeoutError (MaxDuration), *fetch.SlowError (MinRate),
// *checksum.MismatchError, *FormatError, *NoDiskError, *device.TooSmallError, *device.WriteError or the error of ctx.
// After an error the first and the last MiB of the device read as zeros, unless the device could not be opened or
// written, or the image was refused for its header, that is its format, its tables or its size: then the device was not
// changed.
func Write(ctx context.Context, path string, src Source, o Options) (Report, error) {
	w, err := newWriter(path, src, o)
	if err != nil {
		return Report{}, err
	}
	begin := time.Now()
	w.options.Progress.begin()
	report, err := w.write(ctx)
	if err != nil {
		w.options.Progress.enter(PhaseFailed)
		return Report{}, err
	}
	report.Duration = time.Since(begin)
	w.options.Progress.enter(PhaseDone)
	w.options.Log.Info("image written", "url", report.URL, "device", path, "format", report.Format,
		"bytes", report.Bytes, "written", report.Written, "duration", report.Duration)
	return report, nil
}

// Check inspects the header of an image, and returns why Write will refuse it on a device of size bytes: a
// *FormatError, or a *device.TooSmallError whose Device is name. It returns nil if the image is good, or if that is
// unknown: the size of a compressed image is not known before it is decompressed, and a server that fails now can work
// later. Other errors are about an invalid src, or the error of ctx.
func Check(ctx context.Context, name string, size int64, src Source, o Options) error {
	o.Progress = nil // it belongs to Write
	w, err := newWriter(name, src, o)
	if err != nil {
		return err
	}
	w.size = size
	if src.isDeclaredRaw() {
		err = w.checkLength(ctx)
	} else {
		var a *attempt
		if a, err = w.first(ctx); err == nil {
			a.close()
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// checkLength returns an error if a file that is copied as it is does not fit on the device.
func (w *writer) checkLength(ctx context.Context) error {
	once := *w.fetcher
	once.Retries = 0
	resp, err := once.Open(ctx, w.src.URLs[0], &fetch.Range{Len: 1})
	var down *fetch.DownloadError
	if errors.As(err, &down) {
		return nil
	} else if err != nil {
		return err
	}
	defer resp.Close() //nolint:errcheck // its content is not needed
	if resp.Total > w.size {
		return &device.TooSmallError{Device: w.path, Size: w.size, Need: resp.Total}
	}
	return nil
}
