package checksum

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// The digests of "abc" equal the output of Python's hashlib and of coreutils.
func TestAlgorithmsAgreeWithHashlib(t *testing.T) {
	want := map[string]string{
		"sha512": "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a" +
			"2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
		"sha3_512": "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e" +
			"10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
		"blake2b": "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1" +
			"7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
		"sha384": "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed" +
			"8086072ba1e7cc2358baeca134c825a7",
		"sha3_384": "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c2596da7cf0e49be4b2" +
			"98d88cea927ac7f539f1edf228376d25",
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

// In FIPS 140-3 mode only SHA-2 and SHA-3 verify images. Of several digests, an approved one is found.
//
// Parity: T10 (MD5)
func TestFIPS(t *testing.T) {
	if !testenv.FIPS(t) {
		return
	}
	for _, a := range algorithms {
		approved := strings.HasPrefix(a.name, "sha") && a.name != "sha1"
		_, err := Sum{Algorithm: a.name, Value: strings.Repeat("a", a.digits)}.Hash()
		if approved != (err == nil) || approved != Available(a.name) ||
			approved != slices.Contains(Algorithms(), a.name) {
			t.Errorf("%s: got %v, want it to be available: %t", a.name, err, approved)
		}
		const want = "not available in FIPS 140-3 mode (fips=1), want one of sha512"
		if !approved && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", a.name, err, want)
		}
	}
	sha256, blake2b, md5 := strings.Repeat("ab", 32), strings.Repeat("cd", 64), strings.Repeat("ef", 16)
	lines := "BLAKE2b (image.raw) = " + blake2b + "\n" + sha256 + "  image.raw\n" + md5 + "  image.raw\n"
	if sum, err := Find([]byte(lines), "image.raw", ""); err != nil || sum.Value != sha256 {
		t.Errorf("got %+v (%v), want the SHA-256 digest", sum, err)
	}
	sum, err := Find([]byte(md5+"  image.raw\n"), "image.raw", "")
	if err != nil || sum.Algorithm != "md5" {
		t.Errorf("got %+v (%v), want the MD5 digest, which Hash rejects", sum, err)
	}
}

func FuzzChecksumFile(f *testing.F) {
	sum := strings.Repeat("ab12", 16)
	f.Add([]byte(sum), "image.raw")
	f.Add([]byte("SHA256 (image.raw) = "+sum), "image.raw")
	f.Add([]byte(sum+" *image.raw\n# x\n"), "image.raw")
	f.Add([]byte("# SHA3_256 HASH\n"+sum+" *image.raw\n# SHA256 HASH\n"+sum+" *image.raw\n"), "image.raw")
	f.Add([]byte("SHA3-256 (image.raw) = "+sum+"\nSHA2-256(image.raw)= "+sum), "image.raw")
	f.Add(toolOutputs, "image.raw")
	f.Add(bytes.ReplaceAll(toolOutputs, []byte("\n"), []byte("\r\n")), "im\xe4ge.raw")
	f.Add([]byte("SHA256 hash of image.raw:\r\n"+sum+"\r\nSHA256  "+sum+"  C:\\images\\image.raw"), "image.raw")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		for _, named := range []string{"", "sha1", "sha3_256"} {
			sum, err := Find(text, name, named)
			plain := utf8.Valid(text) && !bytes.ContainsAny(text, "\x00\r\ufeff")
			for title, changed := range encodings(text) {
				if again, _ := Find(changed, name, named); plain && again != sum {
					t.Errorf("%s: got %+v, want %+v", title, again, sum)
				}
			}
			if err != nil {
				continue
			}
			decoded := strings.ReplaceAll(decode(text), " ", "")
			if _, err := sum.Hash(); err != nil || !strings.Contains(decoded, sum.Value) {
				t.Errorf("got %+v, which is no checksum of the file: %v", sum, err)
			}
		}
	})
}
