package qemu

import (
	"regexp"
	"strings"
	"testing"
)

func TestBIOSText(t *testing.T) {
	welcome := BIOSText("Welcome to GRUB!")
	for _, test := range []struct {
		console string
		want    bool
	}{
		{"GRUB loading.\r\nWelcome to GRUB!\r\n", true},
		{"GRUB loading.\r\nW\r\x1b[9;2Helcome to GRUB!\r\n", true},
		{Plain("GRUB loading.\r\nW\r\x1b[9;2Helcome to\x1b[0m GRUB!\r\n"), true},
		{"GRUB loading.\r\nW\r\nelcome to GRUB!\r\n", false},
		{"Welcome to GRUB?", false},
	} {
		if got := welcome.MatchString(test.console); got != test.want {
			t.Errorf("%q matches: got %v, want %v", test.console, got, test.want)
		}
	}
}

// A test that waits for a machine whose kernel has panicked ends at once: the machine says nothing more.
func TestFollowEndsAtPanic(t *testing.T) {
	up := regexp.MustCompile("UP")
	c := newConsole(nil, nil)
	_, _ = c.Write([]byte("UP\r\nKernel panic - not syncing: Fatal\r\nRebooting in 1 seconds..\r\nUP again\r\n"))
	if m, err := c.FollowFrom(t.Context(), 4, up); err != nil || m.End < 50 {
		t.Errorf("after a panic with restart: got %v, %v, want the second match", m, err)
	}
	_, _ = c.Write([]byte("---[ end Kernel panic - not syncing: Fatal exception ]---\r\n"))
	if _, err := c.Follow(t.Context(), up); err != nil {
		t.Errorf("a match before the panic is lost: %v", err)
	}
	_, err := c.Follow(t.Context(), regexp.MustCompile("DOWN"))
	if err == nil || !strings.Contains(err.Error(), `kernel panic before "DOWN"`) {
		t.Errorf("got error %v, want one that names the panic", err)
	}
}
