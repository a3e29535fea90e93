package qemu

import (
	"strings"
	"testing"
)

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

func TestVirtualizes(t *testing.T) {
	for text, want := range map[string]bool{
		"processor\t: 0\nvmx flags\t: vnmi\nflags\t\t: fpu vme vmx sse\n": true,
		"processor\t: 0\nflags\t\t: fpu svm\n":                            true,
		"processor\t: 0\nflags\t\t: fpu hypervisor svm_lock avmx\n":       false,
		"processor\t: 0\nvmx flags\t: vmx\n":                              false,
		"":                                                                false,
	} {
		if got := virtualizes(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// QEMU counts instructions only with its emulator, and in one thread.
func TestInstructionClock(t *testing.T) {
	for _, accel := range []string{"", "tcg", "kvm"} {
		c := Config{Accel: accel, InstructionClock: true}
		got := strings.Join(accelArguments(c), " ")
		if want := "-accel tcg,thread=single -cpu " + emulatedProcessor + " -icount shift=0"; got != want {
			t.Errorf("%q: got %s, want %s", accel, got, want)
		}
	}
}
