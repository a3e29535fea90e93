package initramfs

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/debian"
	"ironroot/internal/authorities"
	"ironroot/internal/test/testenv"
)

// chain is a chain of certificates of a host, without the authority.
type chain struct {
	host string
	pem  []byte
	now  time.Time
}

// publicChain returns the chain that www.google.com had in February 2023, from the tests of crypto/x509. Its authority
// is GTS Root R1.
func publicChain(t *testing.T) chain {
	t.Helper()
	text, err := os.ReadFile("testdata/google.pem")
	if err != nil {
		t.Fatal(err)
	}
	return chain{"www.google.com", text, time.Date(2023, 2, 28, 20, 24, 52, 0, time.UTC)}
}

// privateChain returns the path of an authority with a negative serial number, which OpenSSL has made, and the chain of
// a host.
func privateChain(t *testing.T) (string, chain) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	testenv.Run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
		"-keyout", path("ca.key"), "-out", path("ca.pem"), "-subj", "/CN=site", "-addext", "keyUsage=keyCertSign",
		"-set_serial", "-5")
	testenv.Run(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
		"-CA", path("ca.pem"), "-CAkey", path("ca.key"), "-keyout", path("leaf.key"), "-out", path("leaf.pem"),
		"-subj", "/CN=leaf", "-addext", "subjectAltName=DNS:ironic.example", "-addext", "basicConstraints=CA:FALSE")
	text, err := os.ReadFile(path("leaf.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return path("ca.pem"), chain{"ironic.example", text, time.Now().Add(time.Minute)}
}

// A program of the image verifies the chain of a public server, or with --ca-file only the chains of its authorities.
//
// Parity: U5
func TestAuthorities(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "openssl")
	ca, private := privateChain(t)
	public := publicChain(t)
	other, expired := public, public
	other.host, expired.now = "www.example.com", public.now.AddDate(1, 0, 0)
	const unknown = "signed by unknown authority"
	type check struct {
		chain chain
		want  string // part of the error; "" = verified
	}
	bundle := debianBundle(t)
	for name, c := range map[string]struct {
		files  []string
		checks []check
	}{
		"public": {nil, []check{
			{public, ""}, {other, "not www.example.com"}, {expired, "expired"}, {private, unknown},
		}},
		"private": {[]string{ca}, []check{{public, unknown}, {private, ""}}},
		"both":    {[]string{ca, bundle}, []check{{public, ""}, {private, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			report := build(t, func(o *Options) {
				o.ModuleGroups, o.Init, o.CAFiles = []string{"none"}, "ironroot/initramfs/testdata/verify", c.files
			})
			root := t.TempDir()
			for _, r := range readArchive(t, report.Initramfs) {
				if r.Mode&cpio.S_IFMT == cpio.S_IFREG {
					writeBelow(t, root, r)
				}
			}
			if name == "public" {
				checkEqualFiles(t, filepath.Join(root, authoritiesFile), bundle)
			}
			for _, one := range c.checks {
				cmd := exec.Command("/init", one.chain.host, one.chain.now.UTC().Format(time.RFC3339))
				cmd.Stdin, cmd.SysProcAttr = bytes.NewReader(one.chain.pem), &syscall.SysProcAttr{Chroot: root}
				cmd.Dir, cmd.Env = "/", []string{}
				out, err := cmd.CombinedOutput()
				if (err == nil) != (one.want == "") || !strings.Contains(string(out), one.want) {
					t.Errorf("%s at %s: got %v, %q, want %q", one.chain.host, one.chain.now, err, out, one.want)
				}
			}
		})
	}
}

// debianBundle returns the file that Debian's update-ca-certificates makes of the package.
func debianBundle(t *testing.T) string {
	t.Helper()
	testenv.Programs(t, "dpkg-deb")
	archive, err := debian.Open(debian.Options{Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	deb, err := archive.Fetch(t.Context(), AuthoritiesPackage)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	testenv.Run(t, "dpkg-deb", "-x", deb, root)
	for _, name := range []string{"etc/ca-certificates.conf", authoritiesFile} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/ca-certificates.conf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "sh", filepath.Join(root, "usr/sbin/update-ca-certificates"), "--default", "--sysroot", root)
	return filepath.Join(root, authoritiesFile)
}

func checkEqualFiles(t *testing.T, got, want string) {
	t.Helper()
	one, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) || len(two) < 100<<10 {
		t.Errorf("%s has %d bytes, want the %d of %s", got, len(one), len(two), want)
	}
	if _, unusable, err := authorities.Parse(one); err != nil || len(unusable) > 0 {
		t.Errorf("%s: got unusable certificates %v, %v, want none", got, unusable, err)
	}
}

func writeBelow(t *testing.T, root string, r cpio.Record) {
	t.Helper()
	name := filepath.Join(root, r.Name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content(t, r), os.FileMode(r.Mode&0o777)); err != nil {
		t.Fatal(err)
	}
}

// Authorities that cannot be read are errors. An extra file of their name replaces Debian's.
func TestAuthoritiesErrors(t *testing.T) {
	chain, err := os.ReadFile("testdata/google.pem")
	if err != nil {
		t.Fatal(err)
	}
	dir := files(t, map[string]string{
		"text": "no certificate", "empty": "",
		"partly": string(chain) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	})
	archive, err := debian.Open(debian.Options{Offline: true, CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"missing":    {[]string{filepath.Join(dir, "absent")}, "absent: no such file"},
		"text":       {[]string{filepath.Join(dir, "text")}, "text: no usable certificate"},
		"one of two": {[]string{"testdata/google.pem", filepath.Join(dir, "empty")}, "empty: no usable"},
		"bad block":  {[]string{filepath.Join(dir, "partly")}, "partly: PEM block 3 of 3: x509: malformed"},

		"not in archive": {nil, "authorities of your own do as well: --ca-file FILE"},
	} {
		b := &builder{
			Options: Options{Arch: "amd64", CacheDir: t.TempDir(), CAFiles: c.files, Progress: io.Discard},
			archive: archive,
		}
		records, err := b.authorities(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(records) > 0 {
			t.Errorf("%s: got %d records and error %v, want %q", name, len(records), err, c.want)
		}
		extra := []cpio.Record{cpio.StaticFile(authoritiesFile, "text", 0o644)}
		records, err = b.authorities(t.Context(), extra)
		if both := c.files != nil; len(records) > 0 || (err != nil) != both ||
			both && !strings.Contains(err.Error(), "got --ca-file and the extra file") {
			t.Errorf("%s, extra file: got %d records and error %v, want an error: %v", name, len(records), err, both)
		}
	}
}

// A file without a line feed at its end gets one, so that the next one can follow.
func TestReadFiles(t *testing.T) {
	dir := files(t, map[string]string{"a": "one", "b": "two\n"})
	names := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	got, err := readFiles(names)
	if err != nil || len(got) != 2 || string(got[0]) != "one\n" || string(got[1]) != "two\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := readFiles(append(names, filepath.Join(dir, "absent"))); err == nil || got != nil {
		t.Errorf("missing file: got %q, %v, want an error", got, err)
	}
}
