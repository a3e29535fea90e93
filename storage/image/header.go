package image

import (
	"context"
	"io"
	"slices"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// header is the part of the file that decides whether and how the image is written.
type header struct {
	head   []byte // the first MiB
	end    []byte // the last bytes; nil if they are unknown or not needed
	format string // the format that was found, or declared for an image that is not inspected
}

// inspect reads the header from the response, finds out the format of the image, and refuses an image that must not be
// written.
func (a *attempt) inspect(ctx context.Context) (err error) {
	s, h := a.stream, &a.header
	if h.head, err = s.Peek(device.HeadSize); err != nil {
		return err
	}
	if s.IsPart() || a.mode == tablesFirst {
		a.close()
	}
	if h.end = a.readEnd(ctx, s); len(h.head) == 0 {
		return a.emptyError("")
	}
	if h.format, err = a.options.inspect(a.src.Format, h.head, h.end); err != nil {
		return err
	}
	a.options.Log.Info("image format detected", "url", a.url, "format", h.format, "declared", a.src.Format)
	f := findFormat(h.format)
	if f.copied {
		if err := checkDisk(a.url, h.head, a.options.DiskSectorSize); err != nil {
			return err
		}
	}
	a.content, err = f.open(ctx, a)
	return err
}

// checkBeginning refuses an image that is declared as raw, whose beginning shows that it cannot boot.
func (a *attempt) checkBeginning() error {
	head, err := a.stream.Peek(device.HeadSize)
	if err != nil {
		return fetch.Interrupted(err)
	}
	if a.stream.Total > a.size {
		return nil // which is another error
	}
	return checkDisk(a.url, head, a.options.DiskSectorSize)
}

// recheck compares the beginning of the whole file, and its end unless that is nil, with the format of the header: a
// server may have two files.
func (a *attempt) recheck(head, end []byte) error {
	if a.mode == wholeFile || len(head) == 0 {
		return nil
	}
	format := a.header.format
	again, err := a.options.inspect(a.src.Format, head, end)
	if err == nil && again != format {
		err = security(again, "the server sent an image of format %s first, and then one of format %s", format, again)
	}
	return err
}

// endSize is the number of bytes at the end of a file in which formats have a footer.
const endSize = max(vmdkFooterSize, vhdFooterSize)

// lastBytes returns the end of p, at most endSize bytes.
func lastBytes(p []byte) []byte { return p[max(0, len(p)-endSize):] }

// ending has the last bytes, at most endSize, of everything that was added.
type ending []byte

func (e *ending) add(p []byte) {
	all := slices.Concat(*e, lastBytes(p))
	*e = append((*e)[:0], lastBytes(all)...)
}

// readEnd returns the last bytes of the file, or nil if they are not needed or not known: a server that supports ranges
// sends them. A failure is no error, because the end of an image is inspected again when it has arrived. s is the
// beginning of the file, which was read.
func (a *attempt) readEnd(ctx context.Context, s *fetch.Stream) []byte {
	length := int64(len(a.header.head))
	switch {
	case s.Total == length, s.Total < 0 && length < device.HeadSize:
		return lastBytes(a.header.head)
	case s.Total < length, !s.IsPart(), !a.options.needsEnd(a.header.head):
		return nil
	}
	once := *a.fetcher
	once.Retries = 0
	end := make([]byte, min(s.Total, endSize))
	r, err := once.Open(ctx, a.address, &fetch.Range{Off: s.Total - int64(len(end)), Len: int64(len(end))})
	if err == nil {
		defer r.Close() //nolint:errcheck // what was needed has been read
		if !r.Partial || r.Total != s.Total {
			return nil
		}
		_, err = io.ReadFull(r, end)
	}
	if err != nil {
		a.options.Log.Warn("end of image not read, inspected after the transfer", "url", a.url, "err", err)
		return nil
	}
	return end
}

// needsEnd reports whether a file that begins with head is inspected at its end, too.
func (o Options) needsEnd(head []byte) bool {
	found := append(detect(head), formatRaw)
	f := findFormat(found[0])
	return !o.SkipFormatInspection && len(found) <= 2 && (f.copied || f.checkEnd != nil)
}
