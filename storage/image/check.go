package image

import (
	"context"
	"errors"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// Check probes an image, and returns why Write will refuse it on a device of size bytes: a *FormatError, or a
// *device.TooSmallError whose Device is name. It returns nil if the image is good, or if that is unknown: the size of
// a compressed image is not known before it is decompressed, and a server that fails now can work later. Other errors
// are those of an invalid src, and the error of ctx.
func Check(ctx context.Context, name string, size int64, src Source, o Options) error {
	o.Progress = nil // it belongs to Write
	w, err := newWriter(name, src, o)
	if err != nil {
		return err
	}
	w.prober.size = size
	if src.isDeclaredRaw() {
		err = w.checkLength(ctx)
	} else {
		var x *probe
		x, err = w.prober.probeFirst(ctx, w.fetcher)
		x.close()
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
	if resp.Total > w.prober.size {
		return &device.TooSmallError{Device: w.device, Size: w.prober.size, Need: resp.Total}
	}
	return nil
}
