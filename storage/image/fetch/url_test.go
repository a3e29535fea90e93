package fetch

import "testing"

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://host/a/image.raw":                    "http://host/a/image.raw",
		"https://user:secret@host:8443/a?sig=secret": "https://host:8443/a?...",
		"http://host/a#secret":                       "http://host/a",
		"http://user:secret@[::1/x":                  "(unreadable URL)",
	} {
		if got := RedactURL(raw); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}
