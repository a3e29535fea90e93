package qemu

import "testing"

func TestThreadsOf(t *testing.T) {
	for text, want := range map[string]string{
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright": "single",
		"QEMU emulator version 8.0.5":                                            "single",
		"QEMU emulator version 8.1.0":                                            "multi",
		"QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)":                    "multi",
		"":     "single",
		"QEMU": "single",
	} {
		if got := threadsOf(text); got != want {
			t.Errorf("%q: got thread=%s, want %s", text, got, want)
		}
	}
}
