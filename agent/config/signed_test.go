package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unsignedFiles marks files as parts of virtual media.
func unsignedFiles(paths ...string) *Unsigned {
	u := &Unsigned{Params: map[string]bool{}, Files: map[string]bool{}}
	for _, path := range paths {
		u.Files[path] = true
	}
	return u
}

// A signed image with secure settings, and a file of virtual media that tries to replace them.
func TestUnsignedFile(t *testing.T) {
	dir := t.TempDir()
	own := writeFile(t, dir, "10.conf", "[DEFAULT]\ncafile=/etc/own.pem\nlisten_port=1111\n")
	medium := writeFile(t, dir, "50.conf",
		"[DEFAULT]\ncafile=/etc/other.pem\ninsecure=true\nlisten_port=2222\napi_url=https://ironic\n")
	s := Sources{Files: []string{own, medium}}
	if c := load(t, s); c.CAFile != "/etc/other.pem" || !c.Insecure || c.Signed || len(c.Unused()) != 0 {
		t.Errorf("image without a signature: got cafile %s, insecure %t, signed %t, unused %v",
			c.CAFile, c.Insecure, c.Signed, c.Unused())
	}
	s.Unsigned = unsignedFiles(medium)
	c := load(t, s)
	if c.CAFile != "/etc/own.pem" || c.Insecure || !c.Signed {
		t.Errorf("signed image: got cafile %s, insecure %t, signed %t", c.CAFile, c.Insecure, c.Signed)
	}
	if c.ListenPort != 2222 || c.APIURL != "https://ironic" {
		t.Errorf("other options: got port %d, URL %s, want those of the medium", c.ListenPort, c.APIURL)
	}
	var reported []string
	for _, u := range c.Unused() {
		reported = append(reported, u.Name)
	}
	want := []string{"cafile of file " + medium, "insecure of file " + medium}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("reported settings (-want +got):\n%s", diff)
	}
	// A path in another form is the same file.
	s.Files[1] = filepath.Join(dir, "..", filepath.Base(dir)) + "//50.conf"
	if c := load(t, s); c.Insecure {
		t.Error("path in another form: insecure was set")
	}
}

func TestUnsignedParameters(t *testing.T) {
	params := ParseCmdline("ipa-insecure=1 ironroot.shell=1 rootpwd=x sshkey=y ipa-debug=1 ipa-api-url=https://a")
	got := params.DropProtected()
	if diff := cmp.Diff([]string{"ipa-insecure", "ironroot.shell", "rootpwd", "sshkey"}, got); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	if len(params) != 2 {
		t.Errorf("got %v, want the other two parameters", params)
	}
	// Load ignores them, too.
	c := load(t, Sources{
		Params:   ParseCmdline("ipa-insecure=1"),
		Unsigned: &Unsigned{Params: map[string]bool{"ipa-insecure": true}},
	})
	if c.Insecure {
		t.Error("ipa-insecure of virtual media was set")
	}
}

// The options that an attacker could use are protected, in files and by multicast DNS.
func TestProtectedOptions(t *testing.T) {
	var found []string
	for _, o := range options() {
		if o.signed {
			found = append(found, o.fullName())
		}
	}
	if diff := cmp.Diff([]string{"insecure", "cafile"}, found); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	signed, plain := Config{Signed: true}, Config{}
	for _, name := range found {
		if !signed.Protects(name) || plain.Protects(name) {
			t.Errorf("%s: signed image protects it: %t, other image: %t",
				name, signed.Protects(name), plain.Protects(name))
		}
	}
	if signed.Protects("ntp_server") {
		t.Error("ntp_server is protected")
	}
}

// The file that the image's own cafile names must be one of the image.
func TestUnsignedCAFile(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	own := writeFile(t, dir, "own.conf", "[DEFAULT]\ncafile="+ca+"\n")
	s := Sources{Files: []string{own}, Unsigned: unsignedFiles(ca), HasIPv6: withIPv6}
	if _, err := Load(s); err == nil || !strings.Contains(err.Error(), ca) {
		t.Errorf("got %v, want an error that names %s", err, ca)
	}
}

// A URL of Ironic from virtual media does not lead to a server that proves nothing.
func TestUnsignedURL(t *testing.T) {
	for _, tt := range []struct {
		name, cmdline, file string
		unsigned            []string // parameters
		ok                  bool
	}{
		{name: "signed http", cmdline: "ipa-api-url=http://a", ok: true},
		{name: "floppy https", cmdline: "ipa-api-url=https://a", unsigned: []string{"ipa-api-url"}, ok: true},
		{name: "floppy http", cmdline: "ipa-api-url=http://a", unsigned: []string{"ipa-api-url"}},
		{name: "floppy both", cmdline: "ipa-api-url=https://a,http://b", unsigned: []string{"ipa-api-url"}},
		{name: "floppy mdns", cmdline: "ipa-api-url=mdns", unsigned: []string{"ipa-api-url"}, ok: true},
		{
			name: "signed insecure", cmdline: "ipa-insecure=1 ipa-api-url=http://a", unsigned: []string{"ipa-api-url"},
			ok: true,
		},
		{
			name: "unsigned insecure", cmdline: "ipa-insecure=1 ipa-api-url=http://a",
			unsigned: []string{"ipa-api-url", "ipa-insecure"},
		},
		{name: "boot ISO http", cmdline: "ipa-api-url=https://a", file: "[DEFAULT]\napi_url=http://b\n"},
		{
			name: "boot ISO https", cmdline: "ipa-api-url=http://a", file: "[DEFAULT]\napi_url=https://b\n",
			unsigned: []string{"ipa-api-url"}, ok: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := writeFile(t, t.TempDir(), "50.conf", tt.file)
			s := Sources{
				Params: ParseCmdline(tt.cmdline), Files: []string{file}, Unsigned: unsignedFiles(file),
				HasIPv6: withIPv6,
			}
			for _, name := range tt.unsigned {
				s.Unsigned.Params[name] = true
			}
			_, err := Load(s)
			if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "want https") {
				t.Errorf("got %v, want success: %t", err, tt.ok)
			}
			s.Unsigned = nil
			if _, err := Load(s); err != nil {
				t.Errorf("image without a signature: got %v", err)
			}
		})
	}
}

// Copies of a configuration remain signed: the live one is a copy.
func TestSignedIsCloned(t *testing.T) {
	c := load(t, Sources{Unsigned: unsignedFiles()})
	if live := NewLive(c).Get(); !live.Signed || !slices.Equal(live.ignored, c.ignored) {
		t.Errorf("got signed %t, want true", live.Signed)
	}
}
