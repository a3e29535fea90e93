package fetch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// After a redirect, credentials are sent to the URLs to which Python's requests sends them (should_strip_auth).
func TestCredentialsAfterRedirect(t *testing.T) {
	const credentials = "Basic dXNlcjpwYXNzd29yZA==" // user:password
	for _, tt := range []struct {
		path string // URLs, each of which redirects to the next one
		want bool
	}{
		{"http://host/i /j", true},
		{"http://host/i http://host/j", true},
		{"http://host/i //host:80/j", true},
		{"http://host/i http://HOST/j", true},
		{"http://Host/i http://host:80/j", true},
		{"https://host/i https://HOST:443/j", true},
		{"http://host/i http://host/j http://host/k", true},
		{"http://host/i https://host/j", true},
		{"http://host/i https://host:443/j", true},
		{"http://host:8080/i https://host/j", false},
		{"http://host/i https://host:8443/j", false},
		{"https://host/i http://host/j", false},
		{"https://host/i https://host:8443/j", false},
		{"http://host/i http://other/j", false},
		{"http://host/i http://sub.host/j", false},
		{"http://host/i http://host./j", false},
		{"http://host/i http://other/j http://host/k", false},
		{"http://host/i http://other/j /k", false},
	} {
		for _, inURL := range []bool{true, false} {
			urls := strings.Fields(tt.path)
			var sent []string // Authorization headers
			f := Options{Client: &http.Client{Transport: roundTripper(func(q *http.Request) (*http.Response, error) {
				sent = append(sent, q.Header.Get("Authorization"))
				answer := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: q}
				if len(sent) < len(urls) {
					answer.StatusCode, answer.Header = http.StatusFound, http.Header{"Location": {urls[len(sent)]}}
				}
				return answer, nil
			})}}
			first := urls[0]
			if inURL {
				first = strings.Replace(first, "//", "//user:password@", 1)
			} else {
				f.Header = http.Header{"Authorization": {credentials}}
			}
			r, err := New(f, nil).Open(t.Context(), mustParse(first), nil)
			if err != nil {
				t.Errorf("%s: %v", tt.path, err)
				continue
			}
			r.Close() //nolint:errcheck // it has no body
			want := ""
			if tt.want {
				want = credentials
			}
			if len(sent) != len(urls) || sent[0] != credentials || sent[len(sent)-1] != want {
				t.Errorf("%s, in the URL: %t: got %q, want %q at the end", tt.path, inURL, sent, want)
			}
		}
	}
}

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

// No format of a URL shows its password or its query, also in a struct.
func TestURLHidesSecrets(t *testing.T) {
	u, err := ParseURL("https://user:password@host/image?signature=secret")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %q %v %#v", u, u, u, u, u, struct{ URL URL }{u}, []URL{u})
	if strings.Contains(text, "password") || strings.Contains(text, "secret") || !strings.Contains(text, "host/image") {
		t.Errorf("got %s", text)
	}
	encoded, err := json.Marshal(map[string]any{"url": u})
	if err != nil || strings.Contains(string(encoded), "password") {
		t.Errorf("got %s, %v", encoded, err)
	}
}
