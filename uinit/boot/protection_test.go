//go:build linux

package boot

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/efivarfs"
	"ironroot/uinit/boot/layout"
)

// The firmware's state decides whether the command line of the image is the only one; an unknown state does, too.
func TestProtection(t *testing.T) {
	const line = "ipa-api-url=mdns console=ttyS0"
	for _, tt := range []struct {
		name           string
		image          bool
		variable       string // "" = no such variable
		others         bool   // other variables exist
		signed, failed bool
	}{
		{name: "no unified kernel image", variable: "\x06\x00\x00\x00\x01"},
		{name: "Secure Boot", image: true, variable: "\x06\x00\x00\x00\x01", others: true, signed: true},
		{name: "Secure Boot disabled", image: true, variable: "\x06\x00\x00\x00\x00", others: true},
		{name: "firmware without Secure Boot", image: true, others: true},
		{name: "variables not readable", image: true, signed: true, failed: true},
		{name: "variable too short", image: true, variable: "\x06\x00\x00\x00", signed: true, failed: true},
		{name: "variable too long", image: true, variable: "\x06\x00\x00\x00\x00\x00", signed: true, failed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			put := func(name, content string) {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.image {
				put(layout.SignedCmdline, line)
			}
			if tt.variable != "" {
				put(filepath.Join(variablesDir, efivarfs.SecureBootFile), tt.variable)
			}
			if tt.others {
				put(filepath.Join(variablesDir, "BootCurrent"), "")
			}
			p := readProtection(root)
			if p.unified != tt.image || p.signed != tt.signed || (p.err != nil) != tt.failed ||
				tt.image && p.cmdline != line {
				t.Errorf("got %+v, want signed %t, failed %t", p, tt.signed, tt.failed)
			}
		})
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, layout.SignedCmdline), 0o755); err != nil { // not a file
		t.Fatal(err)
	}
	if p := readProtection(root); !p.signed || p.err == nil {
		t.Errorf("command line not readable: got %+v, want signed, and the error", p)
	}
}

func TestProtectionReport(t *testing.T) {
	const line = "a=1 b=2"
	signed := protection{unified: true, signed: true, cmdline: line}
	for _, tt := range []struct {
		p          protection
		used, want string // want "" means nothing
	}{
		{protection{}, line, ""},
		{protection{unified: true, cmdline: line}, "c", "command line is not protected"},
		{signed, line + " --\n", "only its own command line is used"},
		{signed, line + " -- ironroot.shell=1 ipa-standalone=1\n", "known=\"ipa-standalone ironroot.shell\""},
		{signed, "c --\n", "parameters ignored"},
		{protection{unified: true, signed: true, err: os.ErrNotExist}, line, "state of Secure Boot unknown"},
	} {
		var out bytes.Buffer
		tt.p.report(slog.New(slog.NewTextHandler(&out, nil)), tt.used)
		if !strings.Contains(out.String(), tt.want) || (tt.want == "") != (out.Len() == 0) {
			t.Errorf("%+v: got %q, want %q", tt.p, &out, tt.want)
		}
		if strings.Contains(out.String(), "=1") {
			t.Errorf("%s: got %q, want names alone", tt.used, &out)
		}
		if tt.used == line+" --\n" && strings.Contains(out.String(), "ignored") {
			t.Errorf("no other parameters: got %q", &out)
		}
	}
}
