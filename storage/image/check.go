package image

import (
	"context"
	"errors"
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
	w.target = &target{path: name, size: size} // never opened: only its size is looked at
	if w.declaredRaw() {
		err = w.checkLength(ctx)
	} else {
		defer func() { w.examined.close() }()
		err = w.examineFirst(ctx)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// checkLength returns an error if a file that is copied as it is does not fit on the device.
func (w *writer) checkLength(ctx context.Context) error {
	once := *w.fetch
	once.Retries = 0
	b, err := once.open(ctx, w.src.URLs[0], &span{len: 1})
	var down *DownloadError
	if errors.As(err, &down) {
		return nil
	} else if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // nothing of its content is wanted
	if b.total > w.target.size {
		return &TooSmallError{Device: w.device, Size: w.target.size, Need: b.total}
	}
	return nil
}
