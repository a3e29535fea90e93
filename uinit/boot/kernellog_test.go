//go:build linux

package boot

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// escape returns a text as /dev/kmsg shows it.
func escape(text string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c >= 127 || c == '\\' {
			fmt.Fprintf(&out, `\x%02x`, c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

func TestRecordText(t *testing.T) {
	for record, want := range map[string]string{
		"6,3398,9796729647,-;loop1: detected capacity change from 0 to 409600\n": "loop1: detected capacity change " +
			"from 0 to 409600\n",
		"6,339,5140900,-,caller=T1;NET: Registered\n SUBSYSTEM=net\n DEVICE=+net:eth0\n": "NET: Registered\n " +
			"SUBSYSTEM=net\n DEVICE=+net:eth0\n",
		`12,1,2,-;p\xc3\xa4ss\x5cw\x0ard; a\x09b`: "päss\\w\nrd; a\tb",
		`4,1,2,-;\xzz \x4 \x +5\x+5`:              `\xzz \x4 \x +5\x+5`,
		`4,1,2,-;\x`:                              `\x`,
		"no record":                               "",
		"":                                        "",
	} {
		if got := recordText([]byte(record)); got != want {
			t.Errorf("%q: got %q, want %q", record, got, want)
		}
	}
}

// Every text is found in its record.
func FuzzRecordText(f *testing.F) {
	f.Add([]byte("6,1,2,-;text\n"), "a\\b\x00ä")
	f.Add([]byte(`\x41;\x4`), "")
	f.Fuzz(func(t *testing.T, record []byte, text string) {
		if got := recordText(record); len(got) > len(record) {
			t.Errorf("got %d bytes of a record of %d", len(got), len(record))
		}
		if got := recordText([]byte("6,1,2,-;" + escape(text))); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	})
}

// Records are read until there are no more. Those that were overwritten are omitted.
func TestReadRecords(t *testing.T) {
	failed := errors.New("i/o error")
	for name, tt := range map[string]struct {
		reads []any // a record or an error each
		most  int
		want  []string
		err   error
	}{
		"empty":         {[]any{unix.EAGAIN}, 5, nil, nil},
		"all":           {[]any{"a", "b", unix.EAGAIN, "c"}, 5, []string{"a", "b"}, nil},
		"overwritten":   {[]any{"a", unix.EPIPE, "d", unix.EINTR, "e", unix.EAGAIN}, 5, []string{"a", "d", "e"}, nil},
		"always more":   {[]any{"a", "b", "c", "d"}, 3, []string{"a", "b", "c"}, nil},
		"written again": {[]any{unix.EPIPE, unix.EPIPE, unix.EPIPE, "a"}, 3, nil, nil},
		"error":         {[]any{"a", failed, "b"}, 5, []string{"a"}, failed},
	} {
		t.Run(name, func(t *testing.T) {
			left := tt.reads
			read := func(buffer []byte) (int, error) {
				next := left[0]
				left = left[1:]
				if err, ok := next.(error); ok {
					return 0, err
				}
				return copy(buffer, next.(string)), nil
			}
			var got []string
			err := readRecords(read, tt.most, func(record []byte) { got = append(got, string(record)) })
			if !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}
