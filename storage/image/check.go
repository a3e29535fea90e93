package image

import (
	"context"
	"errors"
)

// Check looks at an image before anything is made ready for it, and returns why Write will refuse it on a device of size
// bytes: a *FormatError, or a *TooSmallError whose Device is name. It returns nil where the image is good, and also where
// that cannot be told: the size of a packed image is not known, and a server that does not answer now may answer Write.
// Other errors are those of src, and ctx's.
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

// checkLength asks how long a file is that is copied as it is.
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
