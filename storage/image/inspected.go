package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ironroot/storage/image/qcow2"
)

// examined is what a look at an image has found.
type examined struct {
	rawURL string
	url    string // for errors
	head   []byte
	format string
	m      *qcow2.Map // of a qcow2 image
	seals  []*seal
}

// examineFirst looks at the image before the disk loses anything, and returns why it is refused. A server that does not
// answer well now is none of its business: the transfers ask again, when the old system is gone.
func (w *writer) examineFirst(ctx context.Context) error {
	if w.declaredRaw() {
		return nil
	}
	patient := w.fetch
	once := *patient
	once.Retries = 0
	w.fetch = &once
	x, _, err := w.examine(ctx, w.src.URLs[0])
	w.fetch = patient
	var refused *FormatError
	var small *TooSmallError
	if errors.As(err, &refused) || errors.As(err, &small) {
		return err
	}
	w.examined = x
	return nil
}

// examine finds out what an image is and whether it may be written. opened tells whether the server began to answer.
func (w *writer) examine(ctx context.Context, raw string) (x *examined, opened bool, err error) {
	b, err := w.fetch.open(ctx, raw, &span{len: headSize})
	if err != nil {
		return nil, false, err
	}
	x = &examined{rawURL: raw, url: b.url}
	x.head, err = readHead(b)
	b.Close() //nolint:errcheck // what was needed has been read
	if err != nil {
		return nil, true, broken(err)
	}
	if len(x.head) == 0 {
		return nil, true, &FormatError{Reason: fmt.Sprintf("image %s is empty", x.url)}
	}
	if x.format, err = w.options.inspect(w.src.Format, x.head); err != nil {
		return nil, true, err
	}
	w.log.Info("image format", "url", x.url, "format", x.format, "declared", w.src.Format)
	if x.format == formatQcow2 {
		err = w.readTables(ctx, x)
	} else if p := packingOf(x.format); p != nil {
		err = w.options.peekPacked(p, x.head)
	}
	return x, true, broken(err)
}

// transferInspected gets an image once whose content decides how it is written.
func (w *writer) transferInspected(ctx context.Context, raw string) (report Report, opened bool, err error) {
	x := w.examined
	w.examined = nil // what is known of it is good for one transfer
	if x == nil || x.rawURL != raw {
		if x, opened, err = w.examine(ctx, raw); err != nil {
			return Report{}, opened, err
		}
	}
	if x.format == formatQcow2 {
		report, err = w.unpack(ctx, x)
		return report, true, broken(err)
	}
	whole, err := w.fetch.openStream(ctx, raw)
	if err != nil {
		return Report{}, true, broken(err)
	}
	defer whole.Close() //nolint:errcheck // everything was read, or has failed before
	if p := packingOf(x.format); p != nil {
		report, err = w.copyPacked(ctx, whole, p)
	} else {
		report, err = w.copyRaw(ctx, whole, x.format)
	}
	return report, true, err
}

// readHead reads the first MiB, or less where the file is shorter.
func readHead(b *body) ([]byte, error) {
	head := make([]byte, headSize)
	n, err := io.ReadFull(b, head)
	if atEnd(err) {
		err = nil
	}
	return head[:n], err
}

// recheck looks at the beginning of a stream that was inspected in an earlier answer: a server may have two files.
func (w *writer) recheck(format string, head []byte) error {
	if w.declaredRaw() || len(head) == 0 {
		return nil
	}
	again, err := w.options.inspect(w.src.Format, head)
	if err == nil && again != format {
		err = security(again, "the server sent an image of format %s first, and then one of format %s", format, again)
	}
	return err
}

// qcowRefusal turns an error of the qcow2 reader into a FormatError.
func qcowRefusal(err error) error {
	var refusal *qcow2.Error
	if errors.As(err, &refusal) && refusal.Unsafe {
		return security(formatQcow2, "%v", err)
	}
	return &FormatError{Format: formatQcow2, Reason: err.Error()}
}
