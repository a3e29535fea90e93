package fetch

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
)

// checkRedirect accepts redirects to http and https, and removes the caller's headers for every host but the first. The
// first one gets them and the credentials of the URL again.
func (f Options) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return &redirectError{errors.New("more than 10 redirects")}
	}
	if redirected, ok := req.Context().Value(redirectedKey{}).(*atomic.Bool); ok {
		redirected.Store(true)
	}
	if checkScheme(req.URL) != nil {
		return &redirectError{errNoTarget}
	}
	req.Header.Del("Referer") // net/http puts the last URL there, with a query that may be a signature
	for _, hop := range append(via[1:len(via):len(via)], req) {
		if sameOrigin(via[0].URL, hop.URL) {
			continue
		}
		for name := range f.Header {
			req.Header.Del(name)
		}
		req.Header.Del("Authorization")
		req.Header.Set("Accept-Encoding", "identity")
		return nil
	}
	req.Header = via[0].Header.Clone() // net/http drops the secret ones if the letter case of the host differs
	if req.URL.User == nil {           // net/http keeps them only if the target names no host
		req.URL.User = via[0].URL.User
	}
	return nil
}

// redirectedKey is the context key of the flag that checkRedirect sets when a request was redirected.
type redirectedKey struct{}

// redirectError means that a server redirected to a forbidden target. Another request would not help.
type redirectError struct{ err error }

func (e *redirectError) Error() string { return "redirect: " + e.err.Error() }
func (e *redirectError) Unwrap() error { return e.err }

// sameOrigin reports whether what is meant for a may be sent to b: b has the same host and port, or TLS in addition.
func sameOrigin(a, b *url.URL) bool {
	if !strings.EqualFold(a.Hostname(), b.Hostname()) {
		return false
	}
	if a.Scheme == b.Scheme {
		return port(a) == port(b)
	}
	return a.Scheme == "http" && b.Scheme == "https" && port(a) == "80" && port(b) == "443"
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

func checkScheme(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("got scheme %q, want http or https", u.Scheme)
	}
	if u.Host == "" {
		return errors.New("the URL names no host")
	}
	return nil
}

// URL is the address of a file: of http or https, with a host. The zero value is no URL.
type URL struct {
	text     string // as it was given
	redacted string
	parsed   *url.URL
}

// String returns the URL for logs and errors, as RedactURL does.
func (u URL) String() string { return u.redacted }

// GoString returns the same as String, for the verb %#v.
func (u URL) GoString() string { return u.redacted }

// Secret returns the URL as it was given, with its credentials and query.
func (u URL) Secret() string { return u.text }

// ParseURL parses the URL of a file. Its errors are *DownloadError.
func ParseURL(raw string) (URL, error) {
	u, err := url.Parse(raw)
	if err == nil {
		err = checkScheme(u)
	}
	if err != nil {
		var parse *url.Error // quotes the URL, which may hold a password
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return URL{}, &DownloadError{URL: RedactURL(raw), Err: err, Fatal: true}
	}
	return URL{text: raw, redacted: RedactURL(raw), parsed: u}, nil
}

// CheckURL returns a *DownloadError unless rawURL is a URL of http or https that names a host.
func CheckURL(rawURL string) error {
	_, err := ParseURL(rawURL)
	return err
}

// RedactURL returns a URL for logs and errors: without credentials, query and fragment, any of which can be a secret.
func RedactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable URL)"
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if u.RawQuery != "" {
		u.RawQuery = "..."
	}
	return u.String()
}
