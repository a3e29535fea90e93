package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ironroot/storage/image/qcow2"
)

// transferInspected gets an image once whose content decides how it is written. opened tells whether the server began
// to answer.
func (w *writer) transferInspected(ctx context.Context, raw string) (report Report, opened bool, err error) {
	b, err := w.fetch.open(ctx, raw, &span{len: headSize})
	if err != nil {
		return Report{}, false, err
	}
	head, err := readHead(b)
	b.Close() //nolint:errcheck // what was needed has been read
	if err != nil {
		return Report{}, true, broken(err)
	}
	if len(head) == 0 {
		return Report{}, true, &FormatError{Reason: fmt.Sprintf("image %s is empty", b.url)}
	}
	format, err := w.options.inspect(w.src.Format, head)
	if err != nil {
		return Report{}, true, err
	}
	w.log.Info("image format", "url", b.url, "format", format, "declared", w.src.Format)
	if format == formatQcow2 {
		report, err = w.unpack(ctx, raw, head)
		return report, true, broken(err)
	}
	whole, err := w.fetch.openStream(ctx, raw)
	if err != nil {
		return Report{}, true, broken(err)
	}
	defer whole.Close() //nolint:errcheck // everything was read, or has failed before
	report, err = w.copyRaw(ctx, whole, format)
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
