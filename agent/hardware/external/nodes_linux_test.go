package external

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/hardware"
	"ironroot/internal/test/testenv"
)

// No machine of the tests has a driver of controlNodes. This one makes /dev/zero, minor number 5 of the driver mem.
var _ = func() bool {
	controlNodes = append(controlNodes, controlNodeSet{driver: "mem", name: testNode, count: 6})
	return true
}()

// An executable finds the control nodes and can use them, in a manager root and outside of one.
func TestControlNodes(t *testing.T) {
	node := "/dev/" + testNode
	logsInBoth(t, "stat -c '%F %a %t:%T' "+node+"5; if echo > "+node+"3; then echo written; fi",
		`character special file 600 1:5\nwritten`)
}

// The number of files that an executable can make in memory is limited.
func TestMaxFiles(t *testing.T) {
	logsInBoth(t, "stat -f -c '%T %c' /tmp /run", `tmpfs 65536\ntmpfs 65536`)
}

// logsInBoth runs commands as a step, as an executable of the ramdisk and in a manager root, and requires their output.
func logsInBoth(t *testing.T, commands, output string) {
	t.Helper()
	text, err := os.ReadFile(script(t, answer(site), "{ "+commands+"; } >&2\n"+answer("null")))
	if err != nil {
		t.Fatal(err)
	}
	confined := filepath.Join(onRoot(t), "manager")
	writeExecutable(t, confined, text)
	image := filepath.Join(writeRoot(t, map[string]string{"site": string(text)}), "vendor.squashfs")
	for name, p := range map[string]program{
		"confined": {Argv: []string{confined}}, "root": {Root: image, Argv: []string{Dir + "/site"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := removeTestNodes(); err != nil { // made by the other subtest
				t.Fatal(err)
			}
			var log bytes.Buffer
			m := newManager(p.Argv[0], slog.New(slog.NewTextHandler(&log, nil)), p)
			m.limits = small
			if err := m.describe(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := m.runStep(t.Context(), m.description.Steps[0], hardware.Call{})
			if want := `output="` + output; err != nil || !strings.Contains(log.String(), want) {
				t.Errorf("got %s and %v, want %s:\n%s", got, err, want, log.String())
			}
		})
	}
}

// The numbers are numbers of character devices, and names are compared as a whole.
func TestCharacterMajors(t *testing.T) {
	const devices = `Character devices:
  1 mem
  4 /dev/vc/0
  4 tty
 21 sg
128 ptm
203 cpu/cpuid
237 aac
238 megaraid_sas_ioctl
254 gpiochip
511 tty
junk
 -1 minus
4294967296 large

Block devices:
  8 sd
259 blkext
`
	want := map[string]uint32{
		"mem": 1, "/dev/vc/0": 4, "tty": 4, "sg": 21, "ptm": 128, "cpu/cpuid": 203, "aac": 237,
		"megaraid_sas_ioctl": 238, "gpiochip": 254,
	}
	if diff := cmp.Diff(want, characterMajors(devices)); diff != "" {
		t.Errorf("numbers differ (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "Block devices:\n  8 sd\n", "8 sd\n"} {
		if got := characterMajors(text); len(got) != 0 {
			t.Errorf("%q: got %v, want none", text, got)
		}
	}
}

// A node that has the number is kept, one with another number is replaced. A node that cannot be replaced is an error.
func TestMakeNode(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "node")
	inode := func() uint64 {
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			t.Fatal(err)
		}
		return s.Ino
	}
	check := func(major, minor uint32) {
		t.Helper()
		if err := makeNode(path, unix.Mkdev(major, minor)); err != nil {
			t.Fatal(err)
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			t.Fatal(err)
		}
		if s.Mode != unix.S_IFCHR|0o600 || unix.Major(s.Rdev) != major || unix.Minor(s.Rdev) != minor {
			t.Errorf("got mode %o, number %d:%d, want a character device %d:%d for root", s.Mode, unix.Major(s.Rdev),
				unix.Minor(s.Rdev), major, minor)
		}
	}
	check(1, 3)
	first := inode()
	check(1, 3)
	if inode() != first {
		t.Error("a correct node was made again")
	}
	check(500, 300)
	if err := errors.Join(os.Remove(path), os.Symlink("/dev/null", path)); err != nil {
		t.Fatal(err)
	}
	check(1, 5)
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "file"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := makeNode(path, unix.Mkdev(1, 3)); err == nil {
		t.Error("a directory: got no error")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("got files %v and %v, want the directory alone", files, err)
	}
}
