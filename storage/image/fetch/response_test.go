package fetch

import (
	"net/http"
	"testing"
)

func TestValidator(t *testing.T) {
	const date, later = "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:01 GMT"
	for _, c := range []struct{ tag, modified, date, want string }{
		{`"abc"`, "", "", `"abc"`},
		{`"abc"`, date, later, `"abc"`},
		{`W/"abc"`, date, later, date},
		{`W/"abc"`, "", later, ""},
		{"abc", "", later, ""},
		{"", date, later, date},
		{"", date, date, ""},
		{"", date, "", ""},
		{"", "yesterday", later, ""},
	} {
		h := http.Header{"Etag": {c.tag}, "Last-Modified": {c.modified}, "Date": {c.date}}
		if got := validatorOf(h); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-9/10")
	f.Add("bytes 5-6/*")
	f.Fuzz(func(t *testing.T, text string) {
		if first, total, err := parseContentRange(text); err == nil && (first < 0 || total < -1) {
			t.Errorf("%q: got %d of %d", text, first, total)
		}
	})
}

func TestContentRange(t *testing.T) {
	for text, want := range map[string]struct{ first, total int64 }{
		"bytes 0-9/10":         {0, 10},
		"bytes 512-1023/99999": {512, 99999},
		"bytes 5-6/*":          {5, -1},
	} {
		if first, total, err := parseContentRange(text); err != nil || first != want.first || total != want.total {
			t.Errorf("%q: got %d, %d, %v, want %+v", text, first, total, err, want)
		}
	}
	for _, text := range []string{
		"", "bytes", "bytes 1", "bytes -5/10", "bytes 1-2/-3", "items 0-9/10", "bytes 0-9/99999999999999999999",
	} {
		if first, total, err := parseContentRange(text); err == nil {
			t.Errorf("%q was read as %d, %d", text, first, total)
		}
	}
}
