package fetch

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/checksum"
)

// tokenRegistry is a registry whose manifest and blob need a token. It responds to /v2/ with 404, which would end the
// ping of the library.
func tokenRegistry(
	t *testing.T, challenge func(tokens string) string, token http.HandlerFunc,
) (f Options, reference string) {
	t.Helper()
	tokens := httptest.NewTLSServer(token)
	t.Cleanup(tokens.Close)
	image := imagetest.RandomBytes(11, mib)
	digest := fmt.Sprintf("sha512:%x", sha512.Sum512(image))
	mux := http.NewServeMux()
	mux.HandleFunc("/v2/os/image/manifests/latest", func(w http.ResponseWriter, _ *http.Request) {
		//nolint:errcheck // the client may disconnect
		fmt.Fprintf(w, `{"artifactType": "a", "layers": [{"digest": %q}]}`, digest)
	})
	mux.HandleFunc("/v2/os/image/blobs/"+digest, imagetest.Content(image))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.URL.Path, "/v2/os/") && q.Header.Get("Authorization") != "Bearer the-token" {
			w.Header().Set("WWW-Authenticate", challenge(tokens.URL))
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	f = Options{Client: server.Client(), Header: http.Header{"Authorization": {ociCredentials}}}
	return f, "oci" + strings.TrimPrefix(server.URL, "https") + "/os/image"
}

func bearerOf(tokens string) string { return `Bearer realm="` + tokens + `/token?key=secret"` }

func TestTokens(t *testing.T) {
	good := imagetest.WithoutRanges([]byte(`{"token": "the-token"}`))
	stranger := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if got := q.Header.Get("Authorization"); got != "" {
			t.Errorf("the server that the token server redirects to got %q", got)
		}
		good(w, q)
	}))
	t.Cleanup(stranger.Close)
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("asked for a token in the clear")
	}))
	t.Cleanup(plain.Close)
	for _, tt := range []struct {
		name      string
		challenge func(tokens string) string
		tokens    []http.HandlerFunc // one after another; the last one repeats
		asked     int64
		want      string // in the error
	}{
		{name: "good", tokens: []http.HandlerFunc{good}, asked: 1},
		{
			name: "by its other name",
			tokens: []http.HandlerFunc{
				imagetest.WithoutRanges([]byte(`{"access_token": "the-token", "expires_in": 300}`)),
			}, asked: 1,
		},
		{
			name: "scope of the challenge", asked: 1,
			challenge: func(tokens string) string {
				return bearerOf(tokens) + `, scope="repository:a:pull,push" ,service="a \"b\" c"`
			},
			tokens: []http.HandlerFunc{func(w http.ResponseWriter, q *http.Request) {
				if v := q.URL.Query(); v.Get("scope") != "repository:a:pull,push" || v.Get("service") != `a "b" c` ||
					v.Get("key") != "secret" {
					t.Errorf("got the query %v", v)
				}
				good(w, q)
			}},
		},
		{
			name: "second challenge of a header", asked: 1,
			challenge: func(tokens string) string {
				return `Negotiate YWJj==, Basic realm="a, b=\", Digest c=", charset="UTF-8" , ` + bearerOf(tokens) +
					`,service=ours, Digest realm="a", nonce="b"`
			},
			tokens: []http.HandlerFunc{func(w http.ResponseWriter, q *http.Request) {
				if v := q.URL.Query(); v.Get("service") != "ours" || v.Get("key") != "secret" {
					t.Errorf("got the query %v", v)
				}
				good(w, q)
			}},
		},
		{
			name:   "not at once",
			tokens: []http.HandlerFunc{imagetest.Status(http.StatusServiceUnavailable), good}, asked: 2,
		},
		{name: "never", tokens: []http.HandlerFunc{imagetest.Status(http.StatusBadGateway)}, asked: 3, want: "502"},
		{
			name: "not for these credentials", tokens: []http.HandlerFunc{imagetest.Status(http.StatusForbidden)},
			asked: 1, want: "403",
		},
		{
			name:   "elsewhere",
			tokens: []http.HandlerFunc{http.RedirectHandler(stranger.URL, http.StatusFound).ServeHTTP}, asked: 1,
		},
		{
			name:   "in the clear",
			tokens: []http.HandlerFunc{http.RedirectHandler(plain.URL+"/?key=secret", http.StatusFound).ServeHTTP},
			asked:  1, want: "https only",
		},
		{
			name: "no JSON", tokens: []http.HandlerFunc{imagetest.WithoutRanges([]byte(`"secret`))}, asked: 1,
			want: "none that can be read",
		},
		{
			name: "no token", tokens: []http.HandlerFunc{imagetest.WithoutRanges([]byte(`{"id_token": "secret"}`))},
			asked: 1, want: "none that can be read",
		},
		{
			name:   "a number",
			tokens: []http.HandlerFunc{imagetest.WithoutRanges([]byte(`{"token": 5, "id": "secret"}`))}, asked: 1,
			want: "none that can be read",
		},
		{
			name: "endless", tokens: []http.HandlerFunc{imagetest.Endless([]byte("secret"))}, asked: 1,
			want: "none that can be read",
		},
		{
			name:   "two lines",
			tokens: []http.HandlerFunc{imagetest.WithoutRanges([]byte(`{"token": "secret\r\nHost: b"}`))}, asked: 1,
			want: "none that can be sent",
		},
		{
			name: "credentials in the realm", want: "no https URL",
			challenge: func(tokens string) string {
				return `Bearer realm="` + strings.Replace(tokens, "//", "//a:secret@", 1) + `"`
			},
		},
		{name: "no realm", challenge: func(string) string { return `Bearer service="a"` }, want: "401"},
		{
			name:      "realm that does not end",
			challenge: func(string) string { return `Bearer realm="https://a` },
			want:      "401",
		},
		{name: "unknown to us", challenge: func(string) string { return `Negotiate` }, want: "401"},
		{name: "no challenge", challenge: func(string) string { return `="` }, want: "401"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked atomic.Int64
			if tt.challenge == nil {
				tt.challenge = bearerOf
			}
			f, reference := tokenRegistry(t, tt.challenge, func(w http.ResponseWriter, q *http.Request) {
				n := int(asked.Add(1))
				if tt.tokens == nil {
					return
				}
				if got := q.Header.Get("Authorization"); got != ociCredentials {
					t.Errorf("the token server got %q, want the credentials", got)
				}
				tt.tokens[min(n, len(tt.tokens))-1](w, q)
			})
			f.Retries, f.RetryInterval = 2, time.Millisecond
			a, err := ResolveOCI(t.Context(), f, reference, "amd64")
			if asked.Load() != tt.asked {
				t.Errorf("asked for %d tokens, want %d", asked.Load(), tt.asked)
			}
			if tt.want != "" {
				if !imagetest.IsA[*DownloadError](err) || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want a DownloadError with %q", err, tt.want)
				}
				for _, secret := range []string{"secret", "the-token", strings.TrimPrefix(ociCredentials, "Basic ")} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("the error shows %q: %v", secret, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			data, _, err := readStream(t, a.Fetch, a.URL)
			sum := sha512.Sum512(data)
			want := checksum.Sum{Algorithm: "sha512", Value: hex.EncodeToString(sum[:])}
			if err != nil || len(data) != mib || a.Checksum != want {
				t.Fatalf("got %d bytes, digest %+v and error %v, want the image and %+v",
					len(data), a.Checksum, err, want)
			}
		})
	}
}

// Challenges are split as RFC 9110, section 11.6.1, describes. The first header is its example.
func TestSplitChallenges(t *testing.T) {
	for header, want := range map[string][]string{
		`Basic realm="simple", Newauth realm="apps", type=1, title="Login to \"apps\""`: {
			`Basic realm="simple"`, `Newauth realm="apps", type=1, title="Login to \"apps\""`,
		},
		`Bearer realm="https://a/t",service="s", Basic realm="b"`: {
			`Bearer realm="https://a/t", service="s"`, `Basic realm="b"`,
		},
		`Bearer scope="repository:a:pull,push",realm = x`: {`Bearer scope="repository:a:pull,push", realm = x`},
		"Negotiate,NTLM YWI=,,\tBearer realm=x ,":         {"Negotiate", "NTLM YWI=", "Bearer realm=x"},
		`Basic realm="open, Bearer realm="x`:              {`Basic realm="open, Bearer realm="x`},
		`Basic realm="open\`:                              {`Basic realm="open\`},
		"":                                                nil, " , ": nil,
	} {
		if got := splitChallenges([]string{header}); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
}

// Requests to a token server have the same time limits as all others.
func TestTokenTimeouts(t *testing.T) {
	stop := errors.New("stopped")
	for _, tt := range []struct {
		name string
		set  func(*Options)
		is   func(error) bool
	}{
		{
			"connect timeout", func(f *Options) { f.ConnectTimeout = 50 * time.Millisecond },
			func(err error) bool { return errors.Is(err, errStalled) },
		},
		{"maximum", func(f *Options) { f.MaxDuration = 200 * time.Millisecond }, imagetest.IsA[*TimeoutError]},
		{"cancelled", func(*Options) {}, func(err error) bool { return errors.Is(err, stop) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			f, reference := tokenRegistry(t, bearerOf, func(_ http.ResponseWriter, q *http.Request) {
				if tt.name == "cancelled" {
					cancel(stop)
				}
				<-q.Context().Done()
			})
			tt.set(&f)
			if _, err := ResolveOCI(ctx, f, reference, "amd64"); !tt.is(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The library falls back to http for a registry with such an address. That must not happen.
func TestRegistryInTheClear(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		t.Errorf("asked for %s", q.URL)
	}))
	t.Cleanup(server.Close)
	_, err := ResolveOCI(t.Context(), Options{}, "oci"+strings.TrimPrefix(server.URL, "http")+"/os/image", "amd64")
	if !imagetest.IsA[*DownloadError](err) {
		t.Errorf("got %v, want a DownloadError", err)
	}
}

func TestCheckDigest(t *testing.T) {
	text := []byte("{}")
	for _, tt := range []struct {
		digest string
		good   bool
	}{
		{"sha256:" + sha256Of(text).Value, true},
		{fmt.Sprintf("sha512:%x", sha512.Sum512(text)), true},
		{fmt.Sprintf("sha512:%x", sha512.Sum512(nil)), false},
		{"sha256:" + strings.ToUpper(sha256Of(text).Value), false},
		{fmt.Sprintf("sha384:%x", sha512.Sum384(text)), false},
		{":", false},
	} {
		if err := checkDigest(text, tt.digest); (err == nil) != tt.good {
			t.Errorf("%s: got %v, want that it is accepted: %v", tt.digest, err, tt.good)
		}
	}
}
