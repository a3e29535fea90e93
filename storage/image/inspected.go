package image

import (
	"context"
	"errors"
	"fmt"

	"ironroot/storage/image/qcow2"
)

// examined is what a look at an image has found.
type examined struct {
	rawURL string
	url    string // for errors
	head   []byte
	format string
	stream *stream // the whole file, where the server sent more than was asked for; else nil
	// Of a qcow2 image: where its content lies, as far as that is known, what its tables were when they were fetched, and
	// those that are still to come with the stream.
	m       *qcow2.Map
	seals   []*seal
	passing *passing
}

// close ends the connection that nobody has taken over.
func (x *examined) close() {
	if x != nil && x.stream != nil {
		x.stream.Close() //nolint:errcheck // what was needed has been read
		x.stream = nil
	}
}

// open returns the whole file, which the caller closes.
func (x *examined) open(ctx context.Context, f *fetcher) (*stream, error) {
	if s := x.stream; s != nil {
		x.stream = nil
		return s, nil
	}
	return f.openStream(ctx, x.rawURL, nil)
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
	x, _, err := w.examine(ctx, w.src.URLs[0], true)
	w.fetch = patient
	var refused *FormatError
	var small *TooSmallError
	if errors.As(err, &refused) || errors.As(err, &small) {
		return err
	}
	if w.examined = x; x != nil && x.stream != nil {
		x.stream.fetch = patient
	}
	return nil
}

// examine finds out what an image is and whether it may be written. opened reports whether the server began to answer.
// Where the server knows no ranges, onePass has its answer kept for the transfer, with the tables of a qcow2 image in it.
func (w *writer) examine(ctx context.Context, raw string, onePass bool) (x *examined, opened bool, err error) {
	s, err := w.fetch.openStream(ctx, raw, &span{len: headSize})
	if err != nil {
		return nil, false, err
	}
	x = &examined{rawURL: raw, url: s.url, stream: s}
	if x.head, err = s.peek(); err == nil {
		if s.body.partial || !onePass {
			x.close()
		}
		err = w.judge(ctx, x)
	}
	if err != nil {
		x.close()
		return nil, true, broken(err)
	}
	return x, true, nil
}

// judge looks at the beginning of an image, and at the tables of a qcow2 image.
func (w *writer) judge(ctx context.Context, x *examined) (err error) {
	if len(x.head) == 0 {
		return &FormatError{Reason: fmt.Sprintf("image %s is empty", x.url)}
	}
	if x.format, err = w.options.inspect(w.src.Format, x.head); err != nil {
		return err
	}
	w.log.Info("image format", "url", x.url, "format", x.format, "declared", w.src.Format)
	if x.format == formatQcow2 {
		return w.readTables(ctx, x)
	}
	if p := packingOf(x.format); p != nil {
		return w.options.peekPacked(p, x.head)
	}
	return nil
}

// transferInspected gets an image once whose content decides how it is written.
func (w *writer) transferInspected(ctx context.Context, raw string) (report Report, opened bool, err error) {
	x := w.examined
	w.examined = nil // what is known of it is good for one transfer
	if x == nil || x.rawURL != raw {
		x.close()
		if x, opened, err = w.examine(ctx, raw, true); err != nil {
			return Report{}, opened, err
		}
	}
	report, err = w.transferExamined(ctx, x)
	if errors.Is(err, errOnePass) {
		w.log.Warn("the qcow2 image has to be fetched twice, first for its tables: the server knows no ranges", "url", x.url, "err", err)
		if err := w.target.wipe(); err != nil {
			return Report{}, true, err
		}
		w.progress.restart(PhaseConnect)
		if x, _, err = w.examine(ctx, raw, false); err == nil {
			report, err = w.transferExamined(ctx, x)
		}
	}
	return report, true, err
}

func (w *writer) transferExamined(ctx context.Context, x *examined) (Report, error) {
	if x.format == formatQcow2 && x.passing == nil {
		if err := w.zeroHoles(ctx, x.m); err != nil { // while no server waits
			return Report{}, err
		}
	}
	b, err := x.open(ctx, w.fetch)
	if err != nil {
		return Report{}, broken(err)
	}
	defer b.Close() //nolint:errcheck // everything was read, or has failed before
	if x.format == formatQcow2 {
		return w.unpack(ctx, b, x)
	}
	if p := packingOf(x.format); p != nil {
		return w.copyPacked(ctx, b, p)
	}
	return w.copyRaw(ctx, b, x.format)
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
