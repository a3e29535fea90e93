package printable

import "testing"

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"disk 1, 43 %": "disk 1, 43 %", "é\u00a0中": "é\u00a0中", "\x1b[2J\n\t\x07": "?[2J???",
		"a\u200bb\u202ec": "a?b?c",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
