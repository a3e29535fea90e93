package authorities

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// read returns the joined files of testdata that OpenSSL has made: see testdata/README.md.
func read(t testing.TB, names ...string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", name+".pem"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "")
}

// Each block is a certificate, or named with its number and the reason.
func TestParse(t *testing.T) {
	const malformed = "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n"
	good := read(t, "good")
	der, _ := pem.Decode([]byte(good))
	renamed := func(kind string) string { return strings.ReplaceAll(good, "CERTIFICATE", kind) }
	for name, c := range map[string]struct {
		text string
		want []string // parts of the errors of unusable blocks
	}{
		"one":                 {good, nil},
		"comments":            {"# CA\nsubject=good\n" + good + "\n\nend\n", nil},
		"byte order mark":     {"\ufeff" + good, nil},
		"lines of Windows":    {strings.ReplaceAll(good, "\n", "\r\n"), nil},
		"without a line feed": {strings.TrimSpace(good), nil},
		"old name":            {renamed("X509 CERTIFICATE"), nil},
		"negative serial":     {read(t, "negative", "negative-leaf"), nil},
		"brainpool":           {read(t, "brainpool", "good"), []string{"1 of 2: x509: unsupported elliptic curve"}},
		"Ed448":               {read(t, "good", "ed448"), []string{`2 of 2: certificate of "CN=Ed448": public key`}},
		"DSA":                 {read(t, "good", "dsa"), []string{`2 of 2: certificate of "CN=DSA": public key`}},
		"small key":           {read(t, "rsa512", "good"), []string{`1 of 2: certificate of "CN=RSA 512": RSA key`}},
		"malformed URI":       {read(t, "good", "uri"), []string{"2 of 2: x509: cannot parse URI"}},
		"trusted certificate": {read(t, "good", "trusted"), []string{`2 of 2: got type "TRUSTED CERTIFICATE"`}},
		"private key":         {good + renamed("PRIVATE KEY"), []string{`2 of 2: got type "PRIVATE KEY"`}},
		"malformed":           {malformed + good, []string{"1 of 2: not in PEM form"}},
		"truncated":           {good + good[:len(good)/2], []string{"2 of 2: not in PEM form"}},
		"truncated before":    {good[:len(good)/2] + "\n" + good, []string{"1 of 2: not in PEM form"}},
		"several": {
			read(t, "uri", "good", "dsa", "negative", "brainpool"), []string{"1 of 5", "3 of 5", "5 of 5"},
		},
	} {
		pool, unusable, err := Parse([]byte(c.text))
		if err != nil || pool == nil || !slices.EqualFunc(unusable, c.want, func(got error, want string) bool {
			return strings.Contains(got.Error(), want)
		}) {
			t.Errorf("%s: got unusable blocks %v, %v, want %q", name, unusable, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		text string
		want []string // parts of the error
	}{
		"empty":        {"", nil},
		"text":         {"no certificate", nil},
		"DER":          {string(der.Bytes), nil},
		"all unusable": {read(t, "uri", "dsa"), []string{"1 of 2: x509: cannot parse URI", `2 of 2: certificate of`}},
	} {
		pool, unusable, err := Parse([]byte(c.text))
		if err == nil || pool != nil || len(unusable) > 0 {
			t.Errorf("%s: got %v, %v, want an error alone", name, unusable, err)
			continue
		}
		for _, want := range append(c.want, "no usable certificate in PEM form") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %q in it", name, err, want)
			}
		}
	}
}

// A chain with negative serial numbers, which OpenSSL verifies, is verified.
func TestNegativeSerial(t *testing.T) {
	pool, _, err := Parse([]byte(read(t, "negative")))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(read(t, "negative-leaf")))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	o := x509.VerifyOptions{Roots: pool, DNSName: "ironic.example", CurrentTime: leaf.NotBefore}
	if _, err := leaf.Verify(o); err != nil {
		t.Errorf("got %v, want a verified chain", err)
	}
	if o.Roots, _, err = Parse([]byte(read(t, "good"))); err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(o); !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("other authority: got %v, want an unknown authority", err)
	}
}

// Parse returns either a pool or an error, and a pool only if at least one block is usable.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"good", "negative", "brainpool", "trusted", "dsa", "rsa512", "uri", "ed448"} {
		f.Add([]byte(read(f, name)))
	}
	f.Add([]byte(read(f, "uri", "good")))
	f.Fuzz(func(t *testing.T, text []byte) {
		pool, unusable, err := Parse(text)
		if (pool == nil) != (err != nil) || err != nil && unusable != nil {
			t.Errorf("got pool %v, %v, %v", pool, unusable, err)
		}
		if blocks := strings.Count(string(text), begin); err == nil && len(unusable) >= blocks {
			t.Errorf("got %d unusable blocks of %d, want a usable one", len(unusable), blocks)
		}
	})
}
