package checksum

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf16"
)

// toolOutputs has commands after "$ ", and what they wrote: see testdata/tools.sh.
//
//go:embed testdata/tools.txt
var toolOutputs []byte

// digest returns the digest of a content.
func digest(algorithm, content string) string {
	h := findAlgorithm(algorithm).open()
	h.Write([]byte(content)) //nolint:errcheck // a hash never fails
	return hex.EncodeToString(h.Sum(nil))
}

// mustFind fails the test unless Find finds the digest of "abc".
func mustFind(t *testing.T, title string, text []byte, name, algorithm string) {
	t.Helper()
	sum, err := Find(text, name, "")
	if want := digest(algorithm, "abc"); err != nil || sum.Algorithm != algorithm ||
		!strings.EqualFold(sum.Value, want) {
		t.Errorf("%s: %q: got %+v and error %v, want %s %s", title, name, sum, err, algorithm, want)
	}
}

// Find finds the file in what tools write.
//
// Parity: K3
func TestTools(t *testing.T) {
	escaped := []string{`im\age.raw`, "ima\nge.raw", "image (1) = x.raw", "im\xe4ge.raw", "imäge.raw"}
	image := []string{"image.raw"}
	want := []struct {
		command, algorithm string
		names              []string
	}{
		{"sha256sum other.raw my-image.raw image.raw", "sha256", image},
		{"sha256sum -b other/other.raw ./image.raw", "sha256", image},
		{"sha512sum --tag other.raw image.raw", "sha512", image},
		{`sha384sum my-image.raw im?age.raw ima?ge.raw image\ *.raw im?ge.raw`, "sha384", escaped},
		{`sha256sum --tag other.raw im?age.raw ima?ge.raw image\ *.raw im?ge.raw`, "sha256", escaped},
		{"cksum -a sha224 image.raw", "sha224", image},
		{"cksum -a blake2b -l 512 ./image.raw", "blake2b", image},
		{"md5sum other/other.raw images/image.raw", "md5", image},
		{"openssl dgst -sha512 other.raw image.raw", "sha512", image},
		{"openssl dgst -sha3-256 image.raw", "sha3_256", image},
		{"openssl dgst -r -sha256 images/image.raw", "sha256", image},
		{"busybox sha256sum other.raw images/image.raw", "sha256", image},
		{"busybox md5sum im?age.raw", "md5", []string{`im\age.raw`}},
		{"shasum -a 512 -b other.raw image.raw", "sha512", image},
		{"shasum -a 384 --tag image.raw", "sha384", image},
		{"rhash --uppercase --sha256 other.raw image.raw", "sha256", image},
		{"rhash --bsd --sha256 --md5 other.raw image.raw", "sha256", image},
		{"rhash --sha256 --sha512 other.raw images/image.raw", "sha512", image},
		{"rhash --sfv --sha256 other.raw image.raw", "sha256", image},
		{"sha256deep -l other.raw images/image.raw", "sha256", image},
		{"7z h -scrcSHA256 other.raw image.raw | tail -n +8", "sha256", image},
	}
	outputs := bytes.Split(toolOutputs, []byte("$ "))[1:]
	if len(outputs) != len(want) {
		t.Fatalf("got %d outputs, want %d", len(outputs), len(want))
	}
	for i, output := range outputs {
		command, text, _ := bytes.Cut(output, []byte("\n"))
		if string(command) != want[i].command {
			t.Errorf("output %d: got %q, want %q", i, command, want[i].command)
		}
		for _, name := range want[i].names {
			mustFind(t, want[i].command, text, name, want[i].algorithm)
			for title, changed := range encodings(text) {
				mustFind(t, want[i].command+", "+title, changed, name, want[i].algorithm)
			}
		}
	}
}

// encodings returns a text as other systems encode it.
func encodings(text []byte) map[string][]byte {
	changed := map[string][]byte{
		"CRLF":       bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")),
		"CR":         bytes.ReplaceAll(text, []byte("\n"), []byte("\r")),
		"UTF-8 mark": append([]byte("\ufeff"), text...),
	}
	if bytes.ContainsRune(text, 0xfffd) {
		return changed
	}
	windows := strings.ReplaceAll(toUTF8(string(text)), "\n", "\r\n")
	for name, order := range map[string]binary.AppendByteOrder{
		"UTF-16LE": binary.LittleEndian, "UTF-16BE": binary.BigEndian,
	} {
		var without []byte
		for _, unit := range utf16.Encode([]rune(windows)) {
			without = order.AppendUint16(without, unit)
		}
		changed[name] = append(order.AppendUint16(nil, 0xfeff), without...)
		changed[name+" without a mark"] = without
	}
	return changed
}

// testdata/tools.sh cannot run the tools of Windows. Their forms are as Microsoft documents Get-FileHash and certutil.
func TestWindowsTools(t *testing.T) {
	wanted, other := strings.ToUpper(digest("sha256", "abc")), strings.ToUpper(digest("sha256", "other"))
	var spaced []string
	for i := 0; i < len(wanted); i += 2 {
		spaced = append(spaced, strings.ToLower(wanted[i:i+2]))
	}
	const done = "CertUtil: -hashfile command completed successfully.\n"
	for title, text := range map[string]string{
		"(Get-FileHash image.raw).Hash": wanted + "\n",
		"Get-FileHash other.raw, image.raw": "\nAlgorithm       Hash                               Path\n" +
			"---------       ----                                                               ----\n" +
			"SHA256          " + other + "       C:\\my images\\my-image.raw\n" +
			"SHA256          " + wanted + "       C:\\my images\\image.raw\n\n\n",
		"certutil -hashfile": "SHA256 hash of other.raw:\n" + other + "\n" + done +
			"SHA256 hash of image.raw:\n" + strings.ToLower(wanted) + "\n" + done,
		"certutil -hashfile of Windows 7": "SHA256 hash of file image.raw:\n" + strings.Join(spaced, " ") + "\n" + done,
		"certutil of a path in German":    "SHA256-Hash von C:\\images\\image.raw:\n" + wanted + "\n",
		"relative path":                   other + "  .\\other.raw\n" + wanted + " *.\\image.raw\n",
		"directories":                     other + "  images\\other.raw\n" + wanted + "  x\\images\\image.raw\n",
	} {
		mustFind(t, title, []byte(text), "image.raw", "sha256")
		for encoding, changed := range encodings([]byte(text)) {
			mustFind(t, title+", "+encoding, changed, "image.raw", "sha256")
		}
	}
}

// The DIGESTS files of Gentoo have a section for each algorithm, with digests of equal length. Sections of unknown
// algorithms do not count.
func TestSections(t *testing.T) {
	const name = "install-amd64-minimal-20260726T170023Z.iso"
	sha512, blake2b := digest("sha512", "abc"), digest("blake2b", "abc")
	other := digest("sha512", "other")
	text := "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n" +
		"# BLAKE2B HASH\n" + blake2b + "  " + name + "\n# SHA512 HASH\n" + sha512 + "  " + name + "\n" +
		"# BLAKE2B HASH\n" + other + "  " + name + ".CONTENTS.gz\n" +
		"# SHA512 HASH\n" + other + "  " + name + ".CONTENTS.gz\n" +
		"# WHIRLPOOL HASH\n" + other + "  " + name + "\n-----BEGIN PGP SIGNATURE-----\n"
	for named, want := range map[string]string{"sha512": sha512, "blake2b": blake2b, "sha256": blake2b, "": blake2b} {
		if sum, err := Find([]byte(text), name, named); err != nil || sum.Value != want {
			t.Errorf("%q: got %+v and error %v, want %s", named, sum, err, want)
		}
	}
	whirlpool := "# WHIRLPOOL HASH\n" + other + "  image.raw\n"
	if sum, err := Find([]byte(whirlpool), "image.raw", ""); err == nil {
		t.Errorf("WHIRLPOOL: got %+v, want an error", sum)
	}
	text = "# SHA256 HASH\n# of today\n" + digest("sha256", "abc") + "  image.raw\n"
	mustFind(t, "other comment", []byte(text), "image.raw", "sha256")
}

// A name in another directory counts if there is no line with the name alone. Several digests are an error.
func TestAmbiguous(t *testing.T) {
	wanted, other := digest("sha256", "abc"), digest("sha256", "other")
	long, weak := digest("sha512", "abc"), digest("md5", "other")
	for _, c := range []struct{ name, text, fails string }{
		{name: "directory", text: other + "  a/other.raw\n" + wanted + "  a/image.raw\n"},
		{name: "name alone", text: other + "  a/image.raw\n" + wanted + "  image.raw\n" + other + "  b/image.raw\n"},
		{name: "the same digest", text: wanted + "  a/image.raw\n" + strings.ToUpper(wanted) + " *b/image.raw\n"},
		{name: "two algorithms", text: weak + "  a/image.raw\n" + wanted + "  a/image.raw\n"},
		{
			name: "different weak digests",
			text: weak + "  image.raw\n" + wanted + "  image.raw\n" + weak[1:] + "0  image.raw",
		},
		{
			name: "two directories", text: "\n" + other + "  a/image.raw\n" + wanted + "  b/image.raw\n",
			fails: `lines 2 and 3 have different sha256 digests for "image.raw"`,
		},
		{
			name: "two directories, two algorithms", text: weak + "  a/image.raw\n" + long + "  b/image.raw\n",
			fails: `lines 2 and 1 have digests of files in different directories for "image.raw"`,
		},
		{
			name: "twice", text: other + "  image.raw\n\n" + wanted + "  ./image.raw\n",
			fails: `lines 1 and 3 have different sha256 digests for "image.raw"`,
		},
		{name: "a longer name", text: wanted + "  my-image.raw\n" + wanted + "  image.raw.xz\n", fails: "no line"},
	} {
		if c.fails == "" {
			mustFind(t, c.name, []byte(c.text), "image.raw", "sha256")
			continue
		}
		sum, err := Find([]byte(c.text), "image.raw", "")
		if err == nil || !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: got %+v and error %v, want %q", c.name, sum, err, c.fails)
		}
	}
}
