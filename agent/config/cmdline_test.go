package config

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// ironicAppend holds the parameters that Ironic's iPXE template passes to the kernel.
const ironicAppend = "selinux=0 troubleshoot=0 text ipa-api-url=http://10.0.0.1:6385 " +
	"BOOTIF=52:54:00:1a:15:d6 initrd=ramdisk nofb vga=normal console=ttyS0 ipa-insecure=1 " +
	"ipa-global-request-id=req-94d3b0a6-b5bb-4bb0-9ec9-8bdd1b6a3b1e systemd.journald.forward_to_console=yes"

// Parity: C5
func TestParseCmdline(t *testing.T) {
	tests := []struct {
		name, line string
		want       Params
	}{
		{"empty", " \n", Params{}},
		{"Ironic's template", ironicAppend, Params{
			"selinux": "0", "troubleshoot": "0", "ipa-api-url": "http://10.0.0.1:6385", "BOOTIF": "52:54:00:1a:15:d6",
			"initrd": "ramdisk", "vga": "normal", "console": "ttyS0", "ipa-insecure": "1",
			"ipa-global-request-id":               "req-94d3b0a6-b5bb-4bb0-9ec9-8bdd1b6a3b1e",
			"systemd.journald.forward_to_console": "yes",
		}},
		{"last wins", "a=1 a=2 a=", Params{"a": ""}},
		{"first equals sign", "ipa-api-url=http://h/?a=b", Params{"ipa-api-url": "http://h/?a=b"}},
		{"no name", "=x quiet", Params{}},
		{"white space of all kinds", "\ta=1\n\n b=2\r\n", Params{"a": "1", "b": "2"}},
		{"quotes are characters", `a="b c=d"`, Params{"a": `"b`, "c": `d"`}},
		{
			"quoted key", `sshkey="ssh-ed25519 AAAA ipa-api-url=http://evil me@home" b=1`,
			Params{"sshkey": "ssh-ed25519 AAAA ipa-api-url=http://evil me@home", "b": "1"},
		},
		{"quoted password at the end", `x=1 rootpwd="a b"`, Params{"x": "1", "rootpwd": "a b"}},
		{"empty quotes", `rootpwd="" b=2`, Params{"rootpwd": "", "b": "2"}},
		{
			"GRUB's form", `"sshkey=ssh-ed25519 AAAA ipa-api-url=http://evil me@home" "rootpwd=a b" c=1`,
			Params{"sshkey": "ssh-ed25519 AAAA ipa-api-url=http://evil me@home", "rootpwd": "a b", "c": "1"},
		},
		{"GRUB's form of another parameter", `"a=b c=d"`, Params{`"a`: "b", "c": `d"`}},
		{"GRUB's form unclosed", `"sshkey=ssh-rsa AAAA b=2`, Params{`"sshkey`: "ssh-rsa", "b": "2"}},
		{"GRUB's form with text after it", `"rootpwd=a b"c d=e`, Params{`"rootpwd`: "a", "d": "e"}},
		{"unclosed quote", `sshkey="ssh-rsa AAAA b=2`, Params{"sshkey": `"ssh-rsa`, "b": "2"}},
		{"text after the quote", `sshkey="a b"c d=e`, Params{"sshkey": `"a`, "d": "e"}},
		{"quote inside", `sshkey=a"b c"`, Params{"sshkey": `a"b`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ParseCmdline(tt.line)
			if diff := cmp.Diff(map[string]string(tt.want), map[string]string(got)); diff != "" {
				t.Errorf("ParseCmdline(%q) (-want +got):\n%s", tt.line, diff)
			}
		})
	}
}

func TestAllParams(t *testing.T) {
	var got []string
	for name, value := range AllParams(`a=1 quiet "rootpwd=x y" rootpwd=z a= =b a=2`) {
		got = append(got, name+": "+value)
		if value == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"a: 1", "rootpwd: x y", "rootpwd: z", "a: "}, got); diff != "" {
		t.Errorf("AllParams (-want +got):\n%s", diff)
	}
}

func TestParamsPrintWithoutValues(t *testing.T) {
	params := Params{"ipa-agent-token": "planted", "a": "b"}
	for _, got := range []string{fmt.Sprint(params), fmt.Sprintf("%#v", params), params.LogValue().String()} {
		if strings.Contains(got, "planted") {
			t.Errorf("got %q, want no value in it", got)
		}
		if !strings.Contains(got, "a,ipa-agent-token") {
			t.Errorf("got %q, want the names in it", got)
		}
	}
}

// FuzzParseCmdline checks the parser against the rule it promises: without the two names that may be quoted, a
// parameter is exactly what stands between white space.
func FuzzParseCmdline(f *testing.F) {
	f.Add(ironicAppend)
	f.Add(`sshkey="a b" c=d`)
	f.Add(`"rootpwd=a b" c=d`)
	f.Add("a=b\u00a0c=d =e f==")
	f.Fuzz(func(t *testing.T, line string) {
		got := ParseCmdline(line)
		for name, value := range got {
			if name == "" || strings.ContainsFunc(name, unicode.IsSpace) || strings.Contains(name, "=") {
				t.Errorf("ParseCmdline(%q): got name %q", line, name)
			}
			if name != "sshkey" && name != "rootpwd" && strings.ContainsFunc(value, unicode.IsSpace) {
				t.Errorf("ParseCmdline(%q): got %s=%q with white space", line, name, value)
			}
		}
		if strings.Contains(line, "sshkey") || strings.Contains(line, "rootpwd") {
			return
		}
		want := Params{}
		for _, word := range strings.Fields(line) {
			if name, value, ok := strings.Cut(word, "="); ok && name != "" {
				want[name] = value
			}
		}
		if diff := cmp.Diff(map[string]string(want), map[string]string(got)); diff != "" {
			t.Errorf("ParseCmdline(%q) (-want +got):\n%s", line, diff)
		}
	})
}
