package sysfs

import "testing"

func TestRoot(t *testing.T) {
	for _, c := range []struct {
		root Root
		want [3]string
	}{
		{Root{}, [3]string{"/sys/class/net", "/dev/sda", "/proc/cmdline"}},
		{Root{Path: "/tmp/a"}, [3]string{"/tmp/a/sys/class/net", "/tmp/a/dev/sda", "/tmp/a/proc/cmdline"}},
	} {
		got := [3]string{c.root.Sys("class", "net"), c.root.Dev("sda"), c.root.Proc("cmdline")}
		if got != c.want {
			t.Errorf("root %q: got %q, want %q", c.root.Path, got, c.want)
		}
	}
}
