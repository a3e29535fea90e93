package confine

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestTail(t *testing.T) {
	text := strings.Repeat("0123456789", MaxOutput)
	for name, in := range map[string]struct {
		reader io.Reader
		want   string
	}{
		"short":    {strings.NewReader("end"), "end"},
		"long":     {strings.NewReader(text), text[len(text)-MaxOutput:]},
		"by bytes": {iotest.OneByteReader(strings.NewReader(text)), text[len(text)-MaxOutput:]},
		"failed":   {io.MultiReader(strings.NewReader("read"), iotest.ErrReader(io.ErrClosedPipe)), "read"},
	} {
		if got := Tail(in.reader); !bytes.Equal(got, []byte(in.want)) {
			t.Errorf("%s: got %d bytes %.40q, want %d bytes %.40q", name, len(got), got, len(in.want), in.want)
		}
	}
}
