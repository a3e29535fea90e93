package image

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChecksumAlgorithms(t *testing.T) {
	data := randomBytes(9, 2*mib)
	server := serve(t, content(data))
	for _, sum := range []Checksum{
		md5Of(data), sha256Of(data), sha512Of(data),
		{"sha256", strings.ToUpper(sha256Of(data).Value)},
	} {
		src := rawSource(data, server.URL)
		src.Checksum = sum
		disk := usedDisk(t, 4*mib)
		if _, err := Write(t.Context(), disk, src, Options{}); err != nil {
			t.Errorf("%s: %v", sum.Algorithm, err)
		}
		src.Checksum.Value = strings.Repeat("0", len(sum.Value))
		disk = usedDisk(t, 4*mib)
		if _, err := Write(t.Context(), disk, src, Options{}); !isA[*ChecksumError](err) {
			t.Errorf("%s, wrong: got error %v, want a ChecksumError", sum.Algorithm, err)
		}
		mustNotBoot(t, disk)
	}
}

func TestImageWithoutChecksumIsRefused(t *testing.T) {
	data := randomBytes(9, 100)
	server := serve(t, content(data))
	for _, sum := range []Checksum{{}, {"sha256", ""}, {"", sha256Of(data).Value}, {"sha1", strings.Repeat("a", 40)}, {"sha256", "abc"}, {"md5", sha256Of(data).Value}} {
		src := rawSource(data, server.URL)
		src.Checksum = sum
		if _, err := Write(t.Context(), usedDisk(t, mib), src, Options{}); err == nil {
			t.Errorf("checksum %+v was accepted", sum)
		}
	}
	if n := server.requests.Load(); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

func TestResolveLiteral(t *testing.T) {
	md5, sha256, sha512 := strings.Repeat("0a", 16), strings.Repeat("1B", 32), strings.Repeat("2c", 64)
	for _, c := range []struct {
		name, value, algorithm string
		md5Allowed             bool
		want                   Checksum
		fails                  string
	}{
		{name: "md5 by length", value: md5, md5Allowed: true, want: Checksum{"md5", md5}},
		{name: "md5 not enabled", value: md5, fails: "md5 is not enabled"},
		{name: "md5 by name not enabled", value: md5, algorithm: "MD5", fails: "md5 is not enabled"},
		{name: "sha256 by length", value: sha256, want: Checksum{"sha256", sha256}},
		{name: "sha512 by length", value: sha512, want: Checksum{"sha512", sha512}},
		{name: "sha512 by name", value: sha512, algorithm: "sha512", want: Checksum{"sha512", sha512}},
		{name: "unknown name, known length", value: sha256, algorithm: "sha3", want: Checksum{"sha256", sha256}},
		{name: "name and length differ", value: sha256, algorithm: "sha512", fails: "want 128 hexadecimal digits for sha512"},
		{name: "unknown length", value: "abcdef", fails: "could not be identified"},
		{name: "not hexadecimal", value: strings.Repeat("xy", 32), fails: "could not be identified"},
		{name: "nothing", fails: "no checksum"},
	} {
		got, err := ResolveChecksum(t.Context(), Fetch{}, c.value, c.algorithm, "http://host/image", c.md5Allowed)
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
			server := serve(t, content([]byte(c.text)))
			got, err := ResolveChecksum(t.Context(), Fetch{}, server.URL+"/SUMS?token=secret", "", "http://host/path/image.raw?x=y", false)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got error %v, want %q", err, c.fails)
				}
			} else if diff := cmp.Diff(Checksum{"sha256", sum}, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestChecksumFileFaults(t *testing.T) {
	sum := strings.Repeat("ab12", 16)
	good := content([]byte(sum))
	fetch := Fetch{Retries: 1, ConnectTimeout: 50 * time.Millisecond}
	for _, c := range []struct {
		name  string
		steps []http.HandlerFunc
		url   string
		fails string
	}{
		{name: "503, then 200", steps: []http.HandlerFunc{status(503), good}},
		{name: "truncated, then whole", steps: []http.HandlerFunc{truncated([]byte(sum), 5), good}},
		{name: "404", steps: []http.HandlerFunc{status(404), good}, fails: "404"},
		{name: "stall", steps: []http.HandlerFunc{stalled([]byte(sum), 5)}, fails: "no data arrived in time"},
		{name: "endless", steps: []http.HandlerFunc{endless(bytes.Repeat([]byte("x"), 4096))}, fails: "more than"},
		{name: "file scheme", url: "file:///etc/shadow", fails: `got scheme "file"`},
		{name: "ftp scheme", url: "ftp://host/sum", fails: `got scheme "ftp"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.url == "" {
				c.url = serve(t, c.steps...).URL
			}
			_, err := ResolveChecksum(t.Context(), fetch, c.url, "", "http://host/image.raw", false)
			if got := fmt.Sprint(err); c.fails == "" && err != nil || c.fails != "" && !strings.Contains(got, c.fails) {
				t.Errorf("got error %v, want %q", err, c.fails)
			}
		})
	}
}

func FuzzChecksumFile(f *testing.F) {
	sum := strings.Repeat("ab12", 16)
	f.Add([]byte(sum), "image.raw")
	f.Add([]byte("SHA256 (image.raw) = "+sum), "image.raw")
	f.Add([]byte(sum+" *image.raw\n# x\n"), "image.raw")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		value, err := findChecksum(text, name)
		if err != nil {
			return
		}
		if _, err := algorithmOf(value); err != nil || !bytes.Contains(text, []byte(value)) {
			t.Errorf("got %q, which is no checksum of the file: %v", value, err)
		}
	})
}
