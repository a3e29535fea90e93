package unpack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The first bytes of the frames of a file. Frames that decoders skip are the same in zstd (RFC 8878, section 3.1.2)
// and lz4; pzstd begins every part of a file with one.
const (
	zstdMagic = "\x28\xb5\x2f\xfd"
	lz4Magic  = "\x04\x22\x4d\x18"
	lz4Legacy = "\x02\x21\x4c\x18"

	skippableMagic  = 0x184d2a50 // the lowest four bits are arbitrary
	skippableHeader = 8          // magic, length
)

// skippable returns the length in bytes of the skippable frame that p begins with, or 0 if there is none.
func skippable(p []byte) int64 {
	if len(p) < skippableHeader || binary.LittleEndian.Uint32(p)&^0xf != skippableMagic {
		return 0
	}
	return skippableHeader + int64(binary.LittleEndian.Uint32(p[4:]))
}

// skipFrames returns what follows the skippable frames at the beginning of a file. It returns an empty slice if they
// are longer than head.
func skipFrames(head []byte) []byte {
	for {
		n := skippable(head)
		if n == 0 {
			return head
		}
		head = head[min(n, int64(len(head))):]
	}
}

// detectZstd reports whether a file begins as one of zstd, also of a version before 0.8. A file is taken for zstd if
// its skippable frames are longer than head.
func detectZstd(head []byte) bool {
	first := skipFrames(head)
	return bytes.HasPrefix(first, []byte(zstdMagic)) || zstdVersion(first) > 0 || len(first) == 0 && len(head) > 0
}

// zstdVersion returns N if p begins with a frame of zstd 0.N, whose format is not the final one, and otherwise 0.
func zstdVersion(p []byte) int {
	switch {
	case bytes.HasPrefix(p, []byte("\xfd\x2f\xb5\x1e")):
		return 1
	case len(p) >= 4 && p[0] >= 0x22 && p[0] <= 0x27 && string(p[1:4]) == zstdMagic[1:]:
		return int(p[0]) - 0x20
	}
	return 0
}

// openZstd opens a file of zstd. A decoder keeps twice its window.
func openZstd(r io.Reader, memory int64) (io.ReadCloser, error) {
	window := min(memory/2, zstd.MaxWindowSize)
	b := bufio.NewReader(r)
	head, err := peekFrame(b, zstd.HeaderMaxSize)
	if err != nil {
		return nil, err
	}
	if version := zstdVersion(head); version > 0 {
		return nil, fmt.Errorf("it has the legacy format of zstd 0.%d: compress it by zstd 0.8 or newer", version)
	}
	var frame zstd.Header
	if frame.Decode(head) == nil {
		want := frame.WindowSize
		if frame.SingleSegment {
			want = frame.FrameContentSize
		}
		if want > uint64(window) {
			return nil, fmt.Errorf("its window has %d bytes, at most %d are supported here: "+
				"compress it by zstd -19 or less, without --long", want, window)
		}
	}
	z, err := zstd.NewReader(b,
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(window)))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// peekFrame skips skippable frames and returns the beginning of the next frame, at most n bytes. The end of r is no
// error.
func peekFrame(r *bufio.Reader, n int) ([]byte, error) {
	for {
		head, err := r.Peek(n)
		length := skippable(head)
		if length == 0 {
			if err == io.EOF { //nolint:errorlint // from the source itself
				err = nil
			}
			return head, err
		}
		if _, err := io.CopyN(io.Discard, r, length); err != nil {
			return nil, truncated(err)
		}
	}
}

// detectLZ4 reports whether a file begins as one of lz4, also of its legacy format.
func detectLZ4(head []byte) bool {
	first := skipFrames(head)
	return bytes.HasPrefix(first, []byte(lz4Magic)) || bytes.HasPrefix(first, []byte(lz4Legacy))
}

// openLZ4 opens a file of lz4.
func openLZ4(r io.Reader, _ int64) (io.ReadCloser, error) {
	b := bufio.NewReader(r)
	head, err := peekFrame(b, skippableHeader)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(lz4Legacy)) {
		return nil, errors.New("it has the legacy format of `lz4 -l`: compress it without -l")
	}
	return io.NopCloser(lz4.NewReader(b)), nil
}
