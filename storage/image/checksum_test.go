package image

import (
	"bytes"
	"crypto/sha3"
	"encoding/hex"
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
	sums := []Checksum{
		md5Of(data), sha256Of(data), sha512Of(data),
		{Algorithm: "sha256", Value: strings.ToUpper(sha256Of(data).Value)},
		{Algorithm: "SHA3-256", Value: fmt.Sprintf("%x", sha3.Sum256(data))},
	}
	for _, a := range algorithms {
		h := a.open()
		h.Write(data) //nolint:errcheck // a hash never fails
		sums = append(sums, Checksum{Algorithm: a.name, Value: hex.EncodeToString(h.Sum(nil))})
	}
	for _, sum := range sums {
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

// The digests of "abc" are those of Python's hashlib and of coreutils.
func TestAlgorithmsAgreeWithHashlib(t *testing.T) {
	want := map[string]string{
		"sha512":     "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
		"sha3_512":   "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
		"blake2b":    "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d17d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
		"sha384":     "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
		"sha3_384":   "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c2596da7cf0e49be4b298d88cea927ac7f539f1edf228376d25",
		"sha256":     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"sha512_256": "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23",
		"sha3_256":   "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
		"blake2s":    "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982",
		"sha224":     "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
		"sha512_224": "4634270f707b6a54daae7530460842e20e37ed265ceee9a43e8924aa",
		"sha3_224":   "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf",
		"sha1":       "a9993e364706816aba3e25717850c26c9cd0d89d",
		"md5":        "900150983cd24fb0d6963f7d28e17f72",
	}
	got := map[string]string{}
	for _, a := range algorithms {
		h := a.open()
		h.Write([]byte("abc")) //nolint:errcheck // a hash never fails
		got[a.name] = hex.EncodeToString(h.Sum(nil))
		if len(got[a.name]) != a.digits {
			t.Errorf("%s: got %d digits, want %d", a.name, len(got[a.name]), a.digits)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
}

func TestImageWithoutChecksumIsRefused(t *testing.T) {
	data := randomBytes(9, 100)
	server := serve(t, content(data))
	for _, sum := range []Checksum{{}, {Algorithm: "sha256", Value: ""}, {Algorithm: "", Value: sha256Of(data).Value}, {Algorithm: "whirlpool", Value: strings.Repeat("a", 128)}, {Algorithm: "sha256", Value: "abc"}, {Algorithm: "md5", Value: sha256Of(data).Value}} {
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
	sha1, sha384 := strings.Repeat("3d", 20), strings.Repeat("4e", 48)
	for _, c := range []struct {
		name, value, algorithm string
		md5Allowed             bool
		want                   Checksum
		fails                  string
	}{
		{name: "md5 by length", value: md5, md5Allowed: true, want: Checksum{Algorithm: "md5", Value: md5}},
		{name: "md5 not enabled", value: md5, fails: "md5 is not enabled"},
		{name: "md5 by name not enabled", value: md5, algorithm: "MD5", fails: "md5 is not enabled"},
		{name: "sha256 by length", value: sha256, want: Checksum{Algorithm: "sha256", Value: sha256}},
		{name: "sha512 by length", value: sha512, want: Checksum{Algorithm: "sha512", Value: sha512}},
		{name: "sha1 by name", value: sha1, algorithm: "sha1", want: Checksum{Algorithm: "sha1", Value: sha1}},
		{name: "sha1 by length", value: sha1, fails: "could not be identified"},
		{name: "sha384 by name", value: sha384, algorithm: "SHA384", want: Checksum{Algorithm: "sha384", Value: sha384}},
		{name: "sha3 by name", value: sha256, algorithm: "sha3-256", want: Checksum{Algorithm: "sha3_256", Value: sha256}},
		{name: "blake2b by name", value: sha512, algorithm: "blake2b", want: Checksum{Algorithm: "blake2b", Value: sha512}},
		{name: "sha512 by name", value: sha512, algorithm: "sha512", want: Checksum{Algorithm: "sha512", Value: sha512}},
		{name: "unknown name, known length", value: sha256, algorithm: "sha3", want: Checksum{Algorithm: "sha256", Value: sha256}},
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
				return
			}
			want := Checksum{Algorithm: "sha256", Value: sum, File: server.URL + "/SUMS?..."}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

// Parity: K3
func TestStrongestDigestOfAFile(t *testing.T) {
	digits := func(n int) string { return strings.Repeat("c0ffee00", n/8) }
	d32, d40, d56, d64, d96, d128 := digits(32), digits(40), digits(56), digits(64), digits(96), digits(128)
	for _, c := range []struct{ name, text, named, algorithm, value string }{
		{
			name:      "BSD, ascending",
			text:      "MD5 (image.raw) = " + d32 + "\nSHA256 (image.raw) = " + d64 + "\nSHA512 (image.raw) = " + d128 + "\n",
			algorithm: "sha512", value: d128,
		},
		{
			name:      "BSD, descending",
			text:      "SHA384 (image.raw) = " + d96 + "\nSHA256 (image.raw) = " + d64 + "\nMD5 (image.raw) = " + d32 + "\n",
			algorithm: "sha384", value: d96,
		},
		{name: "GNU", text: d32 + "  image.raw\n" + d64 + "  image.raw\n" + d128 + "  other.raw\n", algorithm: "sha256", value: d64},
		{name: "GNU binary", text: d64 + " *image.raw\n" + d56 + " *image.raw\n" + d128 + " *image.raw\n", algorithm: "sha512", value: d128},
		{name: "OpenSSL", text: "SHA2-256(image.raw)= " + d64 + "\nMD5(image.raw)= " + d32 + "\n", algorithm: "sha256", value: d64},
		{name: "the tag counts", text: "SHA3-256 (image.raw) = " + d64, algorithm: "sha3_256", value: d64},
		{name: "tag and length differ", text: "SHA512 (image.raw) = " + d64 + "\nMD5 (image.raw) = " + d32, algorithm: "md5", value: d32},
		{name: "unknown tag", text: "WHIRLPOOL (image.raw) = " + d128 + "\nSHA256 (image.raw) = " + d64, algorithm: "sha256", value: d64},
		{name: "sha1 is passed over", text: "SHA1 (image.raw) = " + d40 + "\nMD5 (image.raw) = " + d32, algorithm: "md5", value: d32},
		{name: "sha1 by name", named: "sha1", text: d40 + "  image.raw\n", algorithm: "sha1", value: d40},
		{name: "alone, by name", named: "blake2s", text: d64, algorithm: "blake2s", value: d64},
		{name: "name decides between equals", named: "blake2b", text: "SHA512 (image.raw) = " + d128 + "\nBLAKE2b (image.raw) = " + d128, algorithm: "blake2b", value: d128},
		{name: "stronger than the named one", named: "sha256", text: d64 + "  image.raw\n" + d128 + "  image.raw\n", algorithm: "sha512", value: d128},
	} {
		server := serve(t, content([]byte(c.text)))
		got, err := ResolveChecksum(t.Context(), Fetch{}, server.URL+"/SUMS", c.named, "http://host/image.raw", true)
		want := Checksum{Algorithm: c.algorithm, Value: c.value, File: server.URL + "/SUMS"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", c.name, err, diff)
		}
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
	f.Add([]byte("SHA3-256 (image.raw) = "+sum+"\nSHA2-256(image.raw)= "+sum), "image.raw")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		for _, named := range []*algorithm{nil, findAlgorithm("sha1"), findAlgorithm("sha3_256")} {
			sum, err := findChecksum(text, name, named)
			if err != nil {
				continue
			}
			if _, err := sum.hash(); err != nil || !bytes.Contains(text, []byte(sum.Value)) {
				t.Errorf("got %+v, which is no checksum of the file: %v", sum, err)
			}
		}
	})
}
