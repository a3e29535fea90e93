package uki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"debug/pe"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/debian"
	"ironroot/internal/test/debtest"
	"ironroot/internal/test/testenv"
	"ironroot/release"
)

// write writes a file to a new directory and returns its path.
func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// identity is a key with its self-signed certificate.
type identity struct {
	key      *rsa.PrivateKey
	keyFile  string
	certFile string
	certDER  []byte
}

// Keys of the tests, which take long to generate.
var (
	ownKey   = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, minKeyBits) })
	otherKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, minKeyBits) })
	weakKey  = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, minKeyBits/2) })
)

func newIdentity(t testing.TB, generate func() (*rsa.PrivateKey, error)) identity {
	t.Helper()
	key, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	der := certificate(t, &key.PublicKey, key)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return identity{
		key: key, certDER: der,
		keyFile:  write(t, "db.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})),
		certFile: write(t, "db.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}
}

func certificate(t testing.TB, public, private any) []byte {
	t.Helper()
	template := x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "test of ironroot"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// program returns a UEFI program of one section, which is also a bzImage if release is not empty.
func program(machine uint16, release string) []byte {
	const headers, size = 0x400, 0x600
	data := make([]byte, size)
	le := binary.LittleEndian
	copy(data, "MZ")
	le.PutUint32(data[peOffset:], 0x40)
	copy(data[0x40:], "PE\x00\x00")
	start := 0x44
	file, err := binary.Append(nil, le, pe.FileHeader{
		Machine: machine, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(pe.OptionalHeader64{})),
	})
	if err != nil {
		panic(err)
	}
	optional, err := binary.Append(nil, le, pe.OptionalHeader64{
		Magic: 0x20b, SectionAlignment: 0x1000, FileAlignment: 0x200, SizeOfImage: 0x2000, SizeOfHeaders: headers,
		Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION, DllCharacteristics: nxCompat, NumberOfRvaAndSizes: 16,
	})
	if err != nil {
		panic(err)
	}
	copy(data[start:], file)
	copy(data[start+len(file):], optional)
	copy(data[start+len(file)+len(optional):], encodeHeader(pe.SectionHeader{
		Name: ".text", VirtualSize: 0x100, VirtualAddress: 0x1000, Size: 0x200, Offset: headers,
	}))
	if release != "" {
		copy(data[0x1fe:], "\x55\xaa")
		copy(data[0x202:], "HdrS")
		le.PutUint16(data[0x20e:], 0x120)
		copy(data[0x320:], release+" (builder@host) #1 SMP")
	}
	return data
}

// archive returns an archive with an empty file.
func archive(t testing.TB, name string) []byte {
	t.Helper()
	return testenv.Archive(t, cpio.StaticFile(name, "", 0o644))
}

const testRelease = "6.12.0-test"

// options returns the options of a small image with the stub of Debian.
func options(t testing.TB, id identity) Options {
	t.Helper()
	return Options{
		Kernel:  write(t, "vmlinuz", program(pe.IMAGE_FILE_MACHINE_AMD64, testRelease)),
		Initrds: []string{write(t, "initrd", archive(t, "first")), write(t, "more", archive(t, "second"))},
		Out:     filepath.Join(t.TempDir(), "boot.efi"), Cmdline: `ipa-api-url=mdns test="a b"`, Version: "1.2.3",
		Key: id.keyFile, Cert: id.certFile, Debian: debian.Options{}, Log: t.Output(),
	}
}

func mustBuild(t testing.TB, o Options) (Report, []byte) {
	t.Helper()
	report, err := Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	return report, image
}

// sectionsOf returns the sections of an image as debug/pe reads them.
func sectionsOf(t testing.TB, image []byte) map[string]string {
	t.Helper()
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, s := range f.Sections {
		data, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := found[s.Name]; ok {
			t.Errorf("section %s exists twice", s.Name)
		}
		found[s.Name] = string(data[:min(len(data), int(s.VirtualSize))])
	}
	return found
}

func TestSections(t *testing.T) {
	o := options(t, newIdentity(t, ownKey))
	report, image := mustBuild(t, o)
	got := sectionsOf(t, image)
	want := map[string]string{
		".osrel":   "ID=ironroot\nNAME=ironroot\nPRETTY_NAME=\"ironroot 1.2.3\"\nVERSION_ID=1.2.3\n",
		".cmdline": `ipa-api-url=mdns test="a b" --`,
		".uname":   testRelease,
		".linux":   string(program(pe.IMAGE_FILE_MACHINE_AMD64, testRelease)),
	}
	for name, content := range want {
		if diff := cmp.Diff(content, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, row := range []string{sbatHeader + "\n", "\nsystemd-stub,", "\n" + uefiRow} {
		if strings.Count(got[".sbat"], row) != 1 {
			t.Errorf(".sbat: got %q, want %q once", got[".sbat"], row)
		}
	}
	if report.Arch != "amd64" || report.Size != int64(len(image)) {
		t.Errorf("report: got %s, %d bytes, want amd64, %d", report.Arch, report.Size, len(image))
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(o.Out), ".*")); err != nil || len(left) > 0 {
		t.Errorf("got %q left behind, %v", left, err)
	}
}

// The kernel unpacks the command line first, and then the files in their order.
func TestInitrd(t *testing.T) {
	testenv.Programs(t, "cpio")
	_, image := mustBuild(t, options(t, newIdentity(t, ownKey)))
	initrd := sectionsOf(t, image)[".initrd"]
	files := string(archive(t, "first")) + string(archive(t, "second"))
	first := strings.Index(initrd, files)
	if first < 0 || first%archiveAlignment != 0 || !strings.HasSuffix(initrd, files) {
		t.Errorf("archives at byte %d: got %q at the end", first, initrd[max(0, len(initrd)-40):])
	}
	dir := t.TempDir()
	// Without -d: the kernel makes no directories that the archive lacks, either.
	testenv.Run(t, "sh", "-c", `cd "$0" && cpio --quiet -i <"$1"`, dir, write(t, "initrd", []byte(initrd[:first])))
	line, err := os.ReadFile(filepath.Join(dir, "etc/ironroot/signed-cmdline"))
	if err != nil || string(line) != `ipa-api-url=mdns test="a b"` {
		t.Errorf("signed command line: got %q, %v", line, err)
	}
}

// An unsigned image equals, byte for byte, the one that ukify of systemd builds from the same parts.
func TestImageEqualsUkify(t *testing.T) {
	const python = "/usr/bin/python3" // the interpreter for Debian's package python3-pefile
	testenv.Files(t, "install Debian's package python3-pefile", python, "/usr/lib/python3/dist-packages/pefile.py")
	dir := t.TempDir()
	ukify := filepath.Join(dir, "usr/bin/ukify")
	deb := debtest.Packages(t, "", "systemd-ukify")
	err := debian.Extract(t.Context(), deb[0], dir, func(name string) bool { return filepath.Base(name) == "ukify" })
	if err != nil {
		t.Fatal(err)
	}
	for arch, machine := range map[string]uint16{
		"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64,
	} {
		t.Run(arch, func(t *testing.T) {
			o := options(t, identity{})
			o.Unsigned = true
			o.Kernel = write(t, "vmlinuz", program(machine, testRelease))
			stub, err := fetchStub(t.Context(), debian.Options{Progress: t.Output()}, arch)
			if err != nil {
				t.Fatal(err)
			}
			o.Stub = write(t, "stub", stub.Files[0].Content)
			report, got := mustBuild(t, o)
			if report.Arch != arch {
				t.Errorf("architecture: got %s, want %s", report.Arch, arch)
			}
			parts := sectionsOf(t, got)
			golden := filepath.Join(t.TempDir(), "golden.efi")
			testenv.Run(t, python, ukify, "build", "--linux", o.Kernel, "--stub", o.Stub, "--output", golden,
				"--initrd", write(t, "initrd", []byte(parts[".initrd"])), "--uname", testRelease,
				"--cmdline", "@"+write(t, "cmdline", []byte(parts[".cmdline"])),
				"--os-release", "@"+write(t, "osrel", []byte(parts[".osrel"])))
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				t.Errorf("got %d bytes, want %d; they differ from byte %d on", len(got), len(want), at)
			}
		})
	}
}

// Register 11 has the values that systemd-measure 257 computes for the same sections.
func TestImageRegister(t *testing.T) {
	data, err := os.ReadFile("testdata/systemd-measure.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][]PhaseValue
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	sections := []section{
		{osrelSection, []byte("ID=test\n")},
		{cmdlineSection, []byte("a=b c")},
		{linuxSection, []byte("content of linux")},
		{initrdSection, []byte("content of initrd\x00")},
		{unameSection, []byte("6.12.0-test")},
		{sbatSection, []byte("sbat,1,x\n\x00")},
	}
	for _, bank := range banks {
		got := imageRegister(bank.hash, sections)
		if got[0].Phase != "" {
			t.Errorf("%s: first value is that after %q, want that without phases", bank.name, got[0].Phase)
		}
		if diff := cmp.Diff(want[bank.name], got[1:]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", bank.name, diff)
		}
	}
	if len(want) != len(banks) {
		t.Errorf("got %d banks, want %d", len(banks), len(want))
	}
}

// The file next to the image has the values of the report, which do not depend on the signature.
func TestPredictionIsWritten(t *testing.T) {
	o := options(t, newIdentity(t, ownKey))
	report, _ := mustBuild(t, o)
	data, err := os.ReadFile(o.Out + release.PredictionSuffix)
	if err != nil {
		t.Fatal(err)
	}
	var written Prediction
	if err := json.Unmarshal(data, &written); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report.Prediction, written); diff != "" {
		t.Errorf("written values (-report +file):\n%s", diff)
	}
	o.Key, o.Cert, o.Unsigned = "", "", true
	unsigned, _ := mustBuild(t, o)
	if diff := cmp.Diff(report.Prediction, unsigned.Prediction); diff != "" {
		t.Errorf("without a signature (-signed +unsigned):\n%s", diff)
	}
}

// Only the signature depends on the time.
func TestImageIsReproducible(t *testing.T) {
	o := options(t, identity{})
	o.Unsigned = true
	_, first := mustBuild(t, o)
	_, second := mustBuild(t, o)
	if !bytes.Equal(first, second) {
		t.Error("two builds differ")
	}
}

// sbverify accepts the image with the certificate, and nothing else: no other certificate, and no changed byte.
func TestSignature(t *testing.T) {
	testenv.Programs(t, "sbverify")
	id, other := newIdentity(t, ownKey), newIdentity(t, otherKey)
	o := options(t, id)
	_, image := mustBuild(t, o)
	testenv.Run(t, "sbverify", "--cert", id.certFile, o.Out)
	if err := sbverify(t, other.certFile, image); err == nil {
		t.Error("another certificate: got no error")
	}
	sections := sectionsOf(t, image)
	for _, name := range []string{".linux", ".initrd", ".cmdline", ".osrel", ".uname", ".sbat"} {
		changed := slices.Clone(image)
		at := bytes.Index(changed, []byte(sections[name]))
		if at < 0 {
			t.Fatalf("%s: not found", name)
		}
		changed[at+len(sections[name])/2] ^= 1
		if err := sbverify(t, id.certFile, changed); err == nil {
			t.Errorf("%s changed: got no error", name)
		}
	}
	// A key of another form, a certificate as DER, and a certificate of an issuer behind the signer's.
	o.Key = write(t, "pkcs1", pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(id.key),
	}))
	for name, cert := range map[string][]byte{"DER": id.certDER, "issuers": slices.Concat(id.certDER, other.certDER)} {
		o.Cert = write(t, "cert", cert)
		_, image := mustBuild(t, o)
		testenv.Run(t, "sbverify", "--cert", id.certFile, o.Out)
		if got, want := bytes.Contains(image, other.certDER), name == "issuers"; got != want {
			t.Errorf("%s: image contains the issuer's certificate: got %t, want %t", name, got, want)
		}
	}
}

func sbverify(t *testing.T, cert string, image []byte) error {
	t.Helper()
	return command(t, "sbverify", "--cert", cert, write(t, "image", image)).Run()
}

func TestBadInputs(t *testing.T) {
	id, other := newIdentity(t, ownKey), newIdentity(t, otherKey)
	weak := newIdentity(t, weakKey)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	curveKey := write(t, "ec.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	curveCert := write(t, "ec.pem", certificate(t, &curve.PublicKey, curve))
	big := write(t, "big", make([]byte, 1<<20))
	encrypted := write(t, "encrypted", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}}))
	broken := write(t, "broken", []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	base := options(t, id)
	_, signed := mustBuild(t, base)
	arm := write(t, "arm", program(pe.IMAGE_FILE_MACHINE_ARM64, ""))
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no kernel":      {func(o *Options) { o.Kernel = "" }, "kernel, initrd and output"},
		"no initrd":      {func(o *Options) { o.Initrds = nil }, "kernel, initrd and output"},
		"kernel missing": {func(o *Options) { o.Kernel = "/nonexistent" }, "/nonexistent"},
		"kernel is text": {func(o *Options) { o.Kernel = big }, "is no kernel with an EFI stub"},
		"kernel is gzip": {
			func(o *Options) { o.Kernel = write(t, "k", []byte("\x1f\x8b\x08")) }, "compressed by gzip",
		},
		"kernel for i386": {func(o *Options) { o.Kernel = write(t, "k", program(0x14c, "")) }, "machine type 0x14c"},
		"initrd is text":  {func(o *Options) { o.Initrds = []string{big} }, "want a cpio archive"},
		"initrd is empty": {func(o *Options) { o.Initrds = []string{write(t, "i", nil)} }, "is empty"},
		"kernel is truncated": {
			func(o *Options) { o.Kernel = write(t, "k", program(pe.IMAGE_FILE_MACHINE_ARM64, "")[:0x500]) },
			"has 1280 bytes, want 1536",
		},
		"initrd is truncated": {
			func(o *Options) { o.Initrds = []string{write(t, "i", archive(t, "x")[:200])} }, "ends at byte 200",
		},
		"kernel has another checksum": {
			func(o *Options) {
				o.Kernel = write(t, "k", program(pe.IMAGE_FILE_MACHINE_AMD64, ""))
				if err := os.WriteFile(o.Kernel+".sha256", []byte("00  k\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}, "has SHA-256",
		},
		"URL that the agent rejects": {
			func(o *Options) { o.Cmdline = "ipa-api-url=ironic.example" }, "want mdns or URLs",
		},
		"number that the agent rejects": {
			func(o *Options) { o.Cmdline = "ipa-lookup-timeout=soon ipa-api-url=mdns" }, "lookup_timeout",
		},
		"no command line":   {func(o *Options) { o.Cmdline = " " }, "command line is empty"},
		"line break":        {func(o *Options) { o.Cmdline = "a\nb" }, "control character"},
		"open quote":        {func(o *Options) { o.Cmdline = `a="b` }, "open quote"},
		"end of parameters": {func(o *Options) { o.Cmdline = "a -- b" }, "contains --"},
		"long line":         {func(o *Options) { o.Cmdline = strings.Repeat("a", 2045) }, "2048 characters"},
		"long os-release":   {func(o *Options) { o.OSRelease = big }, "more than 65536 bytes"},
		"empty os-release":  {func(o *Options) { o.OSRelease = write(t, "os", []byte("\n")) }, "is empty"},
		"stub is text":      {func(o *Options) { o.Stub = big }, "stub"},
		"stub is an image":  {func(o *Options) { o.Stub = write(t, "s", signed) }, "is signed"},
		"stub for arm64":    {func(o *Options) { o.Stub = arm }, "is for arm64, want amd64"},
		"nothing to sign":   {func(o *Options) { o.Key = "" }, "exactly one of"},
		"two keys":          {func(o *Options) { o.SignCommand = "x" }, "exactly one of"},
		"unsigned with key": {func(o *Options) { o.Unsigned = true }, "exactly one of"},
		"unsigned with certificate": {
			func(o *Options) { o.Key, o.Unsigned = "", true }, "has no certificate",
		},
		"no certificate":      {func(o *Options) { o.Cert = "" }, "needs the certificate"},
		"certificate is text": {func(o *Options) { o.Cert = write(t, "c", []byte("text")) }, "certificate"},
		"certificate is empty": {
			func(o *Options) { o.Cert = write(t, "c", nil) }, "contains no certificate",
		},
		"large certificate": {func(o *Options) { o.Cert = big }, "more than 65536 bytes"},
		"certificate of EC": {func(o *Options) { o.Cert = curveCert }, "ECDSA, want RSA"},
		"weak key": {
			func(o *Options) { o.Cert, o.Key = weak.certFile, weak.keyFile }, "1024 bits, want at least 2048",
		},
		"key of EC":          {func(o *Options) { o.Key = curveKey }, "want RSA"},
		"another key":        {func(o *Options) { o.Key = other.keyFile }, "does not belong to certificate"},
		"key is large":       {func(o *Options) { o.Key = big }, "more than 65536 bytes"},
		"key is encrypted":   {func(o *Options) { o.Key = encrypted }, "is encrypted"},
		"key is broken":      {func(o *Options) { o.Key = broken }, "not a valid key"},
		"key is certificate": {func(o *Options) { o.Key = id.certFile }, "contains no private key"},
		"no directory":       {func(o *Options) { o.Out = "/nonexistent/boot.efi" }, "/nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			o := base
			o.Out = filepath.Join(t.TempDir(), "boot.efi")
			c.change(&o)
			_, err := Build(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if left, err := os.ReadDir(filepath.Dir(o.Out)); err == nil && len(left) > 0 {
				t.Errorf("got the files %v, want none", left)
			}
		})
	}
}

// An image whose kernel does not support memory that is not executable is not marked as if it did.
func TestNXCompatibility(t *testing.T) {
	for _, nx := range []bool{false, true} {
		o := options(t, identity{})
		o.Unsigned = true
		kernel := program(pe.IMAGE_FILE_MACHINE_AMD64, testRelease)
		if !nx {
			clear(kernel[0x58+dllCharacteristics : 0x58+dllCharacteristics+2])
		}
		o.Kernel = write(t, "vmlinuz", kernel)
		_, data := mustBuild(t, o)
		image, err := parseImage(data)
		if err != nil {
			t.Fatal(err)
		}
		if got := image.isNXCompatible(); got != nx {
			t.Errorf("kernel is compatible: %t, image: %t", nx, got)
		}
	}
}

func TestMergeSBAT(t *testing.T) {
	got, err := mergeSBAT([]byte("sbat,1,old\nstub,1,a\n\x00\x00"), nil, []byte("sbat,9,x\r\nkernel,3,b\r\n"))
	if want := sbatHeader + "\nstub,1,a\nkernel,3,b\n\x00"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, bad := range []string{"text", "sbat,1\nno generation\n", "sbat,1\na,1\x01\n"} {
		if got, err := mergeSBAT([]byte(bad)); err == nil {
			t.Errorf("%q: got %q and no error", bad, got)
		}
	}
}

// Each rejected stub has one fault.
func TestStubFaults(t *testing.T) {
	const optional, table = 0x58, 0x58 + 240
	le := binary.LittleEndian
	for name, change := range map[string]func([]byte) []byte{
		"truncated":              func(b []byte) []byte { return b[:0x500] },
		"file alignment":         func(b []byte) []byte { le.PutUint32(b[optional+36:], 3); return b },
		"section alignment":      func(b []byte) []byte { le.PutUint32(b[optional+32:], 0x100); return b },
		"headers too large":      func(b []byte) []byte { le.PutUint32(b[optional+60:], 1<<30); return b },
		"headers too small":      func(b []byte) []byte { le.PutUint32(b[optional+60:], 0x100); return b },
		"no sections":            func(b []byte) []byte { le.PutUint16(b[0x46:], 0); return b },
		"unaligned section":      func(b []byte) []byte { le.PutUint32(b[table+20:], 0x401); return b },
		"overlapping section":    func(b []byte) []byte { le.PutUint32(b[table+20:], 0x200); return b },
		"section behind end":     func(b []byte) []byte { le.PutUint32(b[table+16:], 0x400); return b },
		"address out of range":   func(b []byte) []byte { le.PutUint32(b[table+12:], 0xfffff000); return b },
		"signature":              func(b []byte) []byte { le.PutUint32(b[optional+112+4*8:], 8); return b },
		"data in the headers":    func(b []byte) []byte { b[table+40] = 1; return b },
		"no space in the header": func(b []byte) []byte { le.PutUint32(b[optional+60:], table+40); return b },
	} {
		image, err := parseImage(change(program(pe.IMAGE_FILE_MACHINE_AMD64, "")))
		if err == nil {
			_, err = image.withSections([]section{{".a", []byte("x")}}, true)
		}
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	image, err := parseImage(program(pe.IMAGE_FILE_MACHINE_AMD64, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := image.withSections([]section{{".text", make([]byte, 0x201)}}, true); err == nil {
		t.Error("replacement larger than the section: got no error")
	}
	got, err := image.withSections([]section{{".text", []byte("new")}, {".a", []byte("b")}}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{".text": "new", ".a": "b"}
	if diff := cmp.Diff(want, sectionsOf(t, got)); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
}

// Whatever is accepted as a stub keeps its sections and gets a new one.
func FuzzImage(f *testing.F) {
	f.Add(program(pe.IMAGE_FILE_MACHINE_AMD64, testRelease))
	f.Add(program(pe.IMAGE_FILE_MACHINE_ARM64, ""))
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, data []byte) {
		image, err := parseImage(data)
		if err != nil {
			return
		}
		out, err := image.withSections([]section{{".new", []byte("content")}, {linuxSection, []byte("k")}}, false)
		if err != nil {
			return
		}
		again, err := parseImage(out)
		if err != nil {
			t.Fatal(err)
		}
		if got := again.content(".new"); string(got) != "content" {
			t.Errorf("new section: got %q", got)
		}
		if got, want := len(again.headers), len(image.headers); got < want {
			t.Errorf("sections: got %d, want at least %d", got, want)
		}
	})
}

func FuzzKernel(f *testing.F) {
	f.Add(program(pe.IMAGE_FILE_MACHINE_AMD64, testRelease))
	f.Add(append(program(pe.IMAGE_FILE_MACHINE_ARM64, ""), "Linux version 6.1.0 (x"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := parseKernel(data)
		if err != nil {
			return
		}
		if k.arch != "amd64" && k.arch != "arm64" || len(k.release) > maxRelease ||
			strings.ContainsFunc(k.release, func(c rune) bool { return c <= ' ' }) {
			t.Errorf("got %q, %q", k.arch, k.release)
		}
	})
}

func TestRelease(t *testing.T) {
	for want, kernel := range map[string][]byte{
		testRelease: program(pe.IMAGE_FILE_MACHINE_AMD64, testRelease),
		"":          program(pe.IMAGE_FILE_MACHINE_ARM64, ""),
		"6.1.0-arm": append(program(pe.IMAGE_FILE_MACHINE_ARM64, ""), "Linux version 6.1.0-arm (x@y)"...),
	} {
		k, err := parseKernel(kernel)
		if err != nil || k.release != want {
			t.Errorf("got %q, %v, want %q", k.release, err, want)
		}
	}
}
