package image

import (
	"context"
	"io"
	"slices"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

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

// readEnd returns the last bytes of the file of x, or nil if they are not needed or not known: a server that supports
// ranges sends them. A failure is no error, because the end of an image is inspected again when it has arrived. s is
// the beginning of the file, which was read.
func (p *prober) readEnd(ctx context.Context, x *probe, s *fetch.Stream) []byte {
	length := int64(len(x.head))
	switch {
	case s.Total == length, s.Total < 0 && length < device.HeadSize:
		return lastBytes(x.head)
	case s.Total < length, !s.IsPart(), !p.options.needsEnd(x.head):
		return nil
	}
	once := *x.fetcher
	once.Retries = 0
	end := make([]byte, min(s.Total, endSize))
	r, err := once.Open(ctx, x.rawURL, &fetch.Range{Off: s.Total - int64(len(end)), Len: int64(len(end))})
	if err == nil {
		defer r.Close() //nolint:errcheck // what was needed has been read
		if !r.Partial || r.Total != s.Total {
			return nil
		}
		_, err = io.ReadFull(r, end)
	}
	if err != nil {
		p.options.Log.Warn("end of image not read, inspected after the transfer", "url", x.url, "err", err)
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
