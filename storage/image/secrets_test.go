package image

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// planted is a text that a server sends in any part of its answers. It must not appear in an error.
const planted = "pl4nted.s3cret"

// rawAnswers are whole answers of servers, by name, with the planted text in each part of an answer.
var rawAnswers = map[string]string{
	"body":              "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + planted + "\n",
	"two words":         "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + planted + " name\n",
	"JSON":              "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{\"config\":\"" + planted + "\"}",
	"digest":            "HTTP/1.1 200 OK\r\n\r\n{\"artifactType\":\"a\",\"layers\":[{\"digest\":\"" + planted + "\"}]}",
	"token":             "HTTP/1.1 200 OK\r\n\r\n{\"token\":\"" + planted + "\\u0000\"}",
	"gzip":              "HTTP/1.1 200 OK\r\n\r\n\x1f\x8b\x08" + planted,
	"base64":            "HTTP/1.1 200 OK\r\n\r\nH4sI" + planted,
	"no HTTP":           planted + "\r\n\r\n",
	"status code":       "HTTP/1.1 " + planted + "\r\n\r\n",
	"reason":            "HTTP/1.1 404 " + planted + "\r\nContent-Length: 14\r\n\r\n" + planted,
	"server error":      "HTTP/1.1 500 " + planted + "\r\nContent-Length: 14\r\n\r\n" + planted,
	"header":            "HTTP/1.1 200 OK\r\n" + planted + "\r\n\r\n",
	"header name":       "HTTP/1.1 200 OK\r\n" + planted + " x: y\r\n\r\n",
	"length":            "HTTP/1.1 200 OK\r\nContent-Length: " + planted + "\r\n\r\n",
	"encoding":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + planted + "\r\n\r\n",
	"chunk":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + planted + "\r\n",
	"range":             "HTTP/1.1 206 Partial\r\nContent-Range: " + planted + "\r\nContent-Length: 0\r\n\r\n",
	"challenge":         "HTTP/1.1 401 No\r\nWWW-Authenticate: " + planted + "=\"\r\nContent-Length: 0\r\n\r\n",
	"realm":             "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer realm=\"http://" + planted + "\"\r\nContent-Length: 0\r\n\r\n",
	"scheme":            "HTTP/1.1 302 Found\r\nLocation: " + planted + "://host/\r\nContent-Length: 0\r\n\r\n",
	"host":              "HTTP/1.1 302 Found\r\nLocation: http://" + planted + ".invalid/\r\nContent-Length: 0\r\n\r\n",
	"malformed target":  "HTTP/1.1 302 Found\r\nLocation: http://%zz" + planted + "/\r\nContent-Length: 0\r\n\r\n",
	"truncated content": "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + planted,
}

// saying answers every request with these bytes and closes the connection.
func saying(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()                  //nolint:errcheck // the client reads what arrived
		_, _ = io.WriteString(conn, answer) // the client may have gone
	}
}

// No error quotes what a server sent, for any kind of URL.
func TestErrorsDoNotRepeatAnswers(t *testing.T) {
	image := randomBytes(3, mib)
	for name, answer := range rawAnswers {
		server := serve(t, saying(answer))
		secure := httptest.NewTLSServer(saying(answer))
		t.Cleanup(secure.Close)
		write := func(format string) func(context.Context, Fetch) error {
			return func(ctx context.Context, f Fetch) error {
				src := Source{URLs: []string{server.URL + "/image"}, Format: format, Checksum: sha256Of(image), Fetch: f}
				_, err := Write(ctx, usedDisk(t, 4*mib), src, Options{})
				return err
			}
		}
		for kind, fetch := range map[string]func(context.Context, Fetch) error{
			"raw image":   write("raw"),
			"qcow2 image": write("qcow2"),
			"image":       write(""),
			"vmdk image":  write("vmdk"),
			"looked at first": func(ctx context.Context, f Fetch) error {
				src := Source{URLs: []string{server.URL + "/image"}, Format: "qcow2", Checksum: sha256Of(image), Fetch: f}
				return Check(ctx, "disk", 4*mib, src, Options{})
			},
			"checksum file": func(ctx context.Context, f Fetch) error {
				_, err := ResolveChecksum(ctx, f, server.URL+"/SUMS", "", "http://host/image", false)
				return err
			},
			"manifest": func(ctx context.Context, f Fetch) error {
				f.Client = secure.Client()
				_, err := ResolveOCI(ctx, f, "oci"+strings.TrimPrefix(secure.URL, "https")+"/os/image", "amd64")
				return err
			},
			"token": func(ctx context.Context, f Fetch) error {
				own, reference := tokenRegistry(t, bearerOf, saying(answer))
				own.Retries, own.ConnectTimeout = f.Retries, f.ConnectTimeout
				_, err := ResolveOCI(ctx, own, reference, "amd64")
				return err
			},
			"config drive": func(ctx context.Context, f Fetch) error {
				drive, err := Open(ctx, f, server.URL)
				if err == nil {
					_, err = io.Copy(io.Discard, drive)
					drive.Close() //nolint:errcheck // only read
				}
				return err
			},
		} {
			err := fetch(t.Context(), Fetch{ConnectTimeout: time.Minute})
			if text := fmt.Sprint(err); strings.Contains(strings.ToLower(text), "s3cret") {
				t.Errorf("%s in %s: got error %v, which quotes the response", name, kind, err)
			}
		}
	}
}

// Errors do not quote digests of checksum files: any file with 64 digits can pass for one.
func TestDigestOfAFileIsNotRepeated(t *testing.T) {
	data := randomBytes(4, mib)
	secret := strings.Repeat("5ec7e7", 11)[:64]
	server := serve(t, whole([]byte(secret)))
	sum, err := ResolveChecksum(t.Context(), Fetch{}, server.URL+"/SUMS?x", "", "http://host/image", false)
	if err != nil {
		t.Fatal(err)
	}
	src := rawSource(data, serve(t, content(data)).URL)
	src.Checksum = sum
	_, err = Write(t.Context(), usedDisk(t, 4*mib), src, Options{})
	if !isA[*ChecksumError](err) || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), server.URL+"/SUMS") {
		t.Errorf("got %v, want a ChecksumError that names the file in place of its content", err)
	}
	md5 := serve(t, whole([]byte(secret[:32])))
	_, err = ResolveChecksum(t.Context(), Fetch{}, md5.URL, "", "http://host/image", false)
	if err == nil || strings.Contains(err.Error(), secret[:32]) || !strings.Contains(err.Error(), "md5 is not enabled") {
		t.Errorf("got %v, want a refusal of md5 that does not repeat it", err)
	}
}
