package grubconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                                   nil,
		"  a   b=c ":                         {"a", "b=c"},
		`sshkey="ssh-ed25519 AAAA me" quiet`: {"sshkey=ssh-ed25519 AAAA me", "quiet"},
		`a="" b`:                             {"a=", "b"},
	} {
		if diff := cmp.Diff(want, split(line)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}

func TestBoot(t *testing.T) {
	const want = `set timeout=0
set default=0
menuentry 'boot' {
  linux /vmlinuz 'a='\''$x'\''' 'b'
  initrd /initrd
}
`
	if diff := cmp.Diff(want, Boot("/vmlinuz", "/initrd", `a='$x' b`)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
