package qemu

import "testing"

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
