package fetch

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/checksum"
)

func TestResolveLiteral(t *testing.T) {
	md5, sha256, sha512 := strings.Repeat("0a", 16), strings.Repeat("1B", 32), strings.Repeat("2c", 64)
	sha1, sha384 := strings.Repeat("3d", 20), strings.Repeat("4e", 48)
	for _, c := range []struct {
		name, value, algorithm string
		md5Allowed             bool
		want                   checksum.Sum
		fails                  string
	}{
		{name: "md5 by length", value: md5, md5Allowed: true, want: checksum.Sum{Algorithm: "md5", Value: md5}},
		{name: "md5 not enabled", value: md5, fails: "md5 is not enabled"},
		{name: "md5 by name not enabled", value: md5, algorithm: "MD5", fails: "md5 is not enabled"},
		{name: "sha256 by length", value: sha256, want: checksum.Sum{Algorithm: "sha256", Value: sha256}},
		{name: "sha512 by length", value: sha512, want: checksum.Sum{Algorithm: "sha512", Value: sha512}},
		{name: "sha1 by name", value: sha1, algorithm: "sha1", want: checksum.Sum{Algorithm: "sha1", Value: sha1}},
		{name: "sha1 by length", value: sha1, fails: "could not be identified"},
		{
			name: "sha384 by name", value: sha384, algorithm: "SHA384",
			want: checksum.Sum{Algorithm: "sha384", Value: sha384},
		},
		{
			name: "sha3 by name", value: sha256, algorithm: "sha3-256",
			want: checksum.Sum{Algorithm: "sha3_256", Value: sha256},
		},
		{
			name: "blake2b by name", value: sha512, algorithm: "blake2b",
			want: checksum.Sum{Algorithm: "blake2b", Value: sha512},
		},
		{
			name: "sha512 by name", value: sha512, algorithm: "sha512",
			want: checksum.Sum{Algorithm: "sha512", Value: sha512},
		},
		{
			name: "unknown name, known length", value: sha256, algorithm: "sha3",
			want: checksum.Sum{Algorithm: "sha256", Value: sha256},
		},
		{
			name: "name and length differ", value: sha256, algorithm: "sha512",
			fails: "want 128 hexadecimal digits for sha512",
		},
		{name: "unknown length", value: "abcdef", fails: "could not be identified"},
		{name: "not hexadecimal", value: strings.Repeat("xy", 32), fails: "could not be identified"},
		{name: "nothing", fails: "no checksum"},
	} {
		got, err := ResolveChecksum(t.Context(), Options{}, c.value, c.algorithm, anImage, c.md5Allowed)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: got error %v, want %q", c.name, err, c.fails)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", c.name, err, diff)
		}
	}
}

// Parity: K3
func TestChecksumFiles(t *testing.T) {
	sum, other := strings.Repeat("ab12", 16), strings.Repeat("0099", 16)
	for _, c := range []struct{ name, text, fails string }{
		{name: "plain", text: sum},
		{name: "plain with newline", text: sum + "\n"},
		{name: "GNU", text: other + "  other.img\n" + sum + "  image.raw\n"},
		{name: "GNU binary", text: other + " *other.img\n" + sum + " *image.raw\n"},
		{name: "BSD", text: "SHA256 (other.img) = " + other + "\nSHA256 (image.raw) = " + sum + "\n"},
		{name: "commented", text: "# " + other + "  image.raw\n# comment\n\n" + sum + "  image.raw\n"},
		{name: "many lines", text: strings.Repeat(other+"  filler.img\n", 500) + sum + "  image.raw\n"},
		{name: "carriage returns", text: other + "  other.img\r\n" + sum + "  image.raw\r\n"},
		{name: "md5 and sha256 of the same file", text: "MD5 (image.raw) = nonsense\nSHA256 (image.raw) = " + sum},
		{name: "name that ends like it", text: other + "  my-image.raw\n" + sum + "  image.raw\n"},
		{name: "missing name", text: other + "  other.img\n", fails: `no line has a checksum for "image.raw"`},
		{name: "digits and nothing else twice", text: sum + "\n" + other + "\n", fails: "no line"},
		{name: "not a checksum", text: "hello", fails: "could not be identified"},
		{name: "wrong number of digits", text: sum[1:] + "  image.raw\n", fails: "no line"},
		{name: "empty", text: " \n", fails: "empty"},
		{name: "too long", text: strings.Repeat("# nothing\n", maxChecksumFile/10+1), fails: "more than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := imagetest.Serve(t, imagetest.Content([]byte(c.text)))
			got, err := ResolveChecksum(t.Context(), Options{}, server.URL+"/SUMS?token=secret", "",
				mustParse("http://host/path/image.raw?x=y"), false)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got error %v, want %q", err, c.fails)
				}
				return
			}
			want := checksum.Sum{Algorithm: "sha256", Value: sum, File: server.URL + "/SUMS?..."}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

// A checksum file that the server encodes, without being asked to, is decoded, within the limits of size and time.
// Images are not decoded.
func TestContentEncoding(t *testing.T) {
	sum := strings.Repeat("ab12", 16)
	packed := imagetest.Pack(t, []byte(sum+"  image.raw\n"), "gzip -n")
	damaged := bytes.Clone(packed)
	damaged[len(damaged)-8] ^= 1
	huge := imagetest.Pack(t, bytes.Repeat([]byte("# nothing\n"), maxChecksumFile/10+1), "gzip -n")
	var member bytes.Buffer
	gzip.NewWriter(&member).Close() //nolint:errcheck // a buffer never fails
	for _, tt := range []struct {
		name, encoding string
		body           http.HandlerFunc
		fails          string
	}{
		{"gzip", "gzip", imagetest.WithoutRanges(packed), ""},
		{"old name", "X-GZip", imagetest.WithoutRanges(packed), ""},
		{"two members", "gzip", imagetest.WithoutRanges(append(member.Bytes(), packed...)), ""},
		{"other", "identity", imagetest.WithoutRanges([]byte(sum)), ""},
		{"half", "gzip", imagetest.WithoutRanges(packed[:20]), "decode Content-Encoding gzip: unexpected EOF"},
		{"damaged", "gzip", imagetest.WithoutRanges(damaged), "gzip: invalid checksum"},
		{"not encoded", "gzip", imagetest.WithoutRanges([]byte(sum)), "gzip: invalid header"},
		{"lost connection", "gzip", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(packed)))
			w.Write(packed[:20]) //nolint:errcheck // the client may disconnect
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, errTruncated.Error()},
		{"too long", "gzip", imagetest.WithoutRanges(huge), "more than 1048576 bytes"},
		{"endless", "gzip", imagetest.Endless(bytes.Repeat(member.Bytes(), 1000)), errBloated.Error()},
	} {
		server := imagetest.Serve(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Encoding", tt.encoding)
			tt.body(w, q)
		})
		got, err := ResolveChecksum(t.Context(), Options{}, server.URL+"/SUMS", "", anImage, false)
		if tt.fails == "" && (err != nil || got.Value != sum) ||
			tt.fails != "" && (!imagetest.IsA[*DownloadError](err) || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%s: got %q and error %v, want error %q", tt.name, got.Value, err, tt.fails)
		}
		if tt.name != "gzip" {
			continue
		}
		file, err := Open(t.Context(), Options{}, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(file); err != nil || !strings.HasPrefix(string(text), sum) {
			t.Errorf("Open: got %q and error %v, want the decoded file", text, err)
		}
		file.Close() //nolint:errcheck // only read
		if data, _, err := readStream(t, Options{}, mustParse(server.URL)); err != nil || !bytes.Equal(data, packed) {
			t.Errorf("stream: got %q and error %v, want the encoded file", data, err)
		}
	}
}

// Parity: K3
func TestStrongestDigestOfAFile(t *testing.T) {
	digits := func(n int) string { return strings.Repeat("c0ffee00", n/8) }
	d32, d40, d56, d64, d96, d128 := digits(32), digits(40), digits(56), digits(64), digits(96), digits(128)
	for _, c := range []struct{ name, text, named, algorithm, value string }{
		{
			name: "BSD, ascending",
			text: "MD5 (image.raw) = " + d32 + "\nSHA256 (image.raw) = " + d64 +
				"\nSHA512 (image.raw) = " + d128 + "\n",
			algorithm: "sha512", value: d128,
		},
		{
			name: "BSD, descending",
			text: "SHA384 (image.raw) = " + d96 + "\nSHA256 (image.raw) = " + d64 +
				"\nMD5 (image.raw) = " + d32 + "\n",
			algorithm: "sha384", value: d96,
		},
		{
			name: "GNU", text: d32 + "  image.raw\n" + d64 + "  image.raw\n" + d128 + "  other.raw\n",
			algorithm: "sha256", value: d64,
		},
		{
			name: "GNU binary", text: d64 + " *image.raw\n" + d56 + " *image.raw\n" + d128 + " *image.raw\n",
			algorithm: "sha512", value: d128,
		},
		{
			name: "OpenSSL", text: "SHA2-256(image.raw)= " + d64 + "\nMD5(image.raw)= " + d32 + "\n",
			algorithm: "sha256", value: d64,
		},
		{name: "the tag counts", text: "SHA3-256 (image.raw) = " + d64, algorithm: "sha3_256", value: d64},
		{
			name: "tag and length differ", text: "SHA512 (image.raw) = " + d64 + "\nMD5 (image.raw) = " + d32,
			algorithm: "md5", value: d32,
		},
		{
			name: "unknown tag", text: "WHIRLPOOL (image.raw) = " + d128 + "\nSHA256 (image.raw) = " + d64,
			algorithm: "sha256", value: d64,
		},
		{
			name: "sha1 is passed over", text: "SHA1 (image.raw) = " + d40 + "\nMD5 (image.raw) = " + d32,
			algorithm: "md5", value: d32,
		},
		{name: "sha1 by name", named: "sha1", text: d40 + "  image.raw\n", algorithm: "sha1", value: d40},
		{name: "alone, by name", named: "blake2s", text: d64, algorithm: "blake2s", value: d64},
		{
			name:  "name decides between equals",
			named: "blake2b", text: "SHA512 (image.raw) = " + d128 + "\nBLAKE2b (image.raw) = " + d128,
			algorithm: "blake2b", value: d128,
		},
		{
			name: "stronger than the named one", named: "sha256",
			text: d64 + "  image.raw\n" + d128 + "  image.raw\n", algorithm: "sha512", value: d128,
		},
	} {
		server := imagetest.Serve(t, imagetest.Content([]byte(c.text)))
		got, err := ResolveChecksum(t.Context(), Options{}, server.URL+"/SUMS", c.named, anImage, true)
		want := checksum.Sum{Algorithm: c.algorithm, Value: c.value, File: server.URL + "/SUMS"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", c.name, err, diff)
		}
	}
}

// A digest that is shorter than the named algorithm's is rejected, although its length fits another algorithm.
//
// Parity: K3
func TestWeakerDigestsOfAFile(t *testing.T) {
	digits := func(n int) string { return strings.Repeat("c0ffee00", n/8) }
	for text, named := range map[string]string{
		digits(64):                              "sha512",
		digits(64) + "  image.raw\n":            "sha512",
		"MD5 (image.raw) = " + digits(32):       "sha256",
		digits(32) + "  image.raw\n# comment\n": "sha1",
	} {
		server := imagetest.Serve(t, imagetest.Content([]byte(text)))
		sum, err := ResolveChecksum(t.Context(), Options{}, server.URL+"/SUMS", named, anImage, true)
		if err == nil || !strings.Contains(err.Error(), "want "+named) {
			t.Errorf("%q: got %v and %v, want an error that names %s", text, sum, err, named)
		}
	}
}

func TestChecksumFileFaults(t *testing.T) {
	sum := strings.Repeat("ab12", 16)
	good := imagetest.Content([]byte(sum))
	for _, c := range []struct {
		name  string
		steps []http.HandlerFunc
		url   string
		fails string
	}{
		{name: "503, then 200", steps: []http.HandlerFunc{imagetest.Status(503), good}},
		{name: "truncated, then whole", steps: []http.HandlerFunc{imagetest.Truncated([]byte(sum), 5), good}},
		{name: "404", steps: []http.HandlerFunc{imagetest.Status(404), good}, fails: "404"},
		{name: "stall", steps: []http.HandlerFunc{imagetest.Stalled([]byte(sum), 5)}, fails: "no data arrived in time"},
		{
			name: "endless", steps: []http.HandlerFunc{imagetest.Endless(bytes.Repeat([]byte("x"), 4096))},
			fails: "more than",
		},
		{name: "file scheme", url: "file:///etc/shadow", fails: `got scheme "file"`},
		{name: "ftp scheme", url: "ftp://host/sum", fails: `got scheme "ftp"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.url == "" {
				c.url = imagetest.Serve(t, c.steps...).URL
			}
			o := Options{Retries: 1}
			if c.name == "stall" {
				o.ConnectTimeout = 2 * time.Second // a busy machine must connect within it
			}
			_, err := ResolveChecksum(t.Context(), o, c.url, "", anImage, false)
			if got := fmt.Sprint(err); c.fails == "" && err != nil || c.fails != "" && !strings.Contains(got, c.fails) {
				t.Errorf("got error %v, want %q", err, c.fails)
			}
		})
	}
}
