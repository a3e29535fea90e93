package chroot

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// The program cannot read anything of the ramdisk: command line, kernel log, kernel memory, settings of the kernel,
// other devices, open files.
func TestSecrets(t *testing.T) {
	s := system(t)
	other := testenv.Loop(t, testenv.SparseFile(t, 1<<20), 512)
	image := testenv.SparseFile(t, 4<<20)
	testenv.Run(t, "mkfs.ext4", "-q", image)
	mounted := testenv.Loop(t, image, 512)
	s.Devices = []string{mounted}
	s.Mounts = []Mount{{mounted, "ext4", "/nowhere"}, {mounted, "ext4", "/etc"}}
	t.Setenv("SECRET", "SECRET")
	const inherited = "/etc/hostname"
	fd, err := unix.Open(inherited, unix.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var failed *Error
	if err := Run(t.Context(), s, nil, "installer", "spy"); !errors.As(err, &failed) {
		t.Fatalf("got %v, want the output of the program", err)
	}
	t.Log(failed.Output)
	if own := strings.TrimSpace(string(line)); own != "" && strings.Contains(failed.Output, own) {
		t.Errorf("got the machine's command line %q", own)
	}
	found, err := block.Probe(t.Context(), s.Root)
	if err != nil {
		t.Fatal(err)
	}
	name := func(device string) string { return strings.TrimPrefix(device, "/dev/") }
	devices := []string{"full", "null", "random", "tty", "urandom", "zero", name(s.Root), name(mounted)}
	slices.Sort(devices)
	wanted := []string{
		`read /proc/cmdline: "root=UUID=` + found.UUID + ` ro\n" <nil>`,
		`read /proc/1/cmdline: "/usr/sbin/installer\x00spy\x00" <nil>`,
		`(?m)read /proc/kcore: (open .*|"" EOF)$`,
		`(?m)read /proc/kmsg: (open .*|"" EOF)$`,
		`(?m)read /proc/bootconfig: (open .*|"" EOF)$`,
		`read /dev/kmsg: open /dev/kmsg: no such file or directory`,
		`read /dev/mem: open /dev/mem: no such file or directory`,
		`environ secret false <nil>`,
		`write /proc/sys/kernel/core_pattern: .*read-only file system`,
		`log: operation not permitted`,
		`unmount: operation not permitted`,
		`mount: operation not permitted`,
		`node: operation not permitted`,
		`chroot: operation not permitted`,
		`devices: \[` + strings.Join(devices, " ") + `\]`,
		`mounted: /etc ext4`,
		`mount ` + mounted + `, ext4, at /nowhere: no such file or directory`,
	}
	for _, name := range []string{"/proc/sysrq-trigger", "/sys/kernel/uevent_helper"} {
		if _, err := os.Stat(name); err == nil { // as the kernel is configured
			wanted = append(wanted, "write "+name+": .*read-only file system")
		}
	}
	for _, want := range wanted {
		pattern := want
		if !strings.HasPrefix(want, "(?m)") && !strings.HasPrefix(want, "write ") &&
			!strings.HasPrefix(want, "devices") {
			pattern = regexp.QuoteMeta(want)
		}
		if !regexp.MustCompile(pattern).MatchString(failed.Output) {
			t.Errorf("got no %s in the output:\n%s", want, failed.Output)
		}
	}
	if !strings.Contains(failed.Output, "open file: /dev/null\n") ||
		strings.Contains(failed.Output, "open file: "+inherited) {
		t.Errorf("want open files of the program only, not %s:\n%s", inherited, failed.Output)
	}
	if strings.Contains(failed.Output, name(other)) {
		t.Errorf("got %s, want only devices of the system", other)
	}
	left(t, s)
	if _, err := os.Stat(filepath.Join("/", "etc", "shadow")); err != nil {
		t.Errorf("the root of this machine changed: %v", err)
	}
}

// A device node in the image opens no device.
func TestDeviceOfImage(t *testing.T) {
	testenv.Root(t)
	other := testenv.Loop(t, testenv.SparseFile(t, 1<<20), 512)
	var info unix.Stat_t
	if err := unix.Stat(other, &info); err != nil {
		t.Fatal(err)
	}
	s := systemOf(t, func(path string) {
		testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", path, "./testdata/installer")
		node := filepath.Join(filepath.Dir(path), "device")
		if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(info.Rdev)); err != nil {
			t.Fatal(err)
		}
	}, 64<<20, "mkfs.ext4", "-q", "-d")
	var failed *Error
	const want = "device of the image: open /usr/sbin/device: permission denied\n"
	if err := Run(t.Context(), s, nil, "installer", "spy"); !errors.As(err, &failed) ||
		!strings.Contains(failed.Output, want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// With CAP_SYS_ADMIN, which GRUB needs on Btrfs, the program can neither remove the masks nor make the kernel swap the
// ramdisk's memory to its disk. The ioctls that GRUB needs work.
func TestMasksStay(t *testing.T) {
	for _, kind := range []struct {
		name   string
		system System
		search string // what Btrfs answers
	}{
		{"btrfs", systemOn(t, 128<<20, "mkfs.btrfs", "-q", "--rootdir"), "errno 0"},
		{"ext4", system(t), "inappropriate ioctl for device"},
	} {
		var failed *Error
		if err := Run(t.Context(), kind.system, nil, "installer", "undo"); !errors.As(err, &failed) {
			t.Fatalf("%s: got %v, want the output of the program", kind.name, err)
		}
		sameAnswers(t, kind.name, failed.Output, kind.search)
		left(t, kind.system)
	}
}

// sameAnswers compares the results that the program prints of its calls with the expected ones.
func sameAnswers(t *testing.T, name, output, search string) {
	t.Helper()
	want := map[string]string{
		"in a new namespace": "fork/exec /proc/self/exe: operation not permitted", "search of Btrfs": search,
	}
	for _, call := range []string{
		"unmount", "mount", "remount", "pivot_root", "setns", "bpf", "perf_event_open", "log", "swapon", "swapoff",
		"fanotify_init", "fanotify_mark", "open_by_handle_at", "userfaultfd", "io_uring_setup",
	} {
		want[call] = "operation not permitted"
	}
	for _, call := range []string{ // mount(8) calls mount instead
		"fsopen", "fspick", "open_tree", "move_mount", "mount_setattr", "fsconfig", "fsmount", "open_tree_attr",
		"later call",
	} {
		want[call] = "function not implemented"
	}
	got := map[string]string{}
	for line := range strings.Lines(output) {
		call, answer, _ := strings.Cut(strings.TrimSpace(line), ": ")
		got[call] = answer
	}
	if line := got["command line"]; !strings.HasPrefix(line, `"root=UUID=`) {
		t.Errorf("%s: got command line %s, want the system's", name, line)
	}
	delete(got, "command line")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: answers differ (-want +got):\n%s", name, diff)
	}
}

// The ioctls that query Btrfs and the device mapper require CAP_SYS_ADMIN; no other system gets it.
func TestPrivileged(t *testing.T) {
	for e, want := range map[*entry]bool{
		{Kind: "ext4", System: System{Root: "/dev/sda1"}}:  false,
		{Kind: "xfs", System: System{Root: "/dev/dmraid"}}: false,
		{Kind: "btrfs", System: System{Root: "/dev/sda1"}}: true,
		{Kind: "ext4", System: System{Root: "/dev/dm-3"}}:  true,
	} {
		if got := e.privileged(); got != want {
			t.Errorf("%s on %s: got %v, want %v", e.Kind, e.Root, got, want)
		}
	}
	nodes, err := entry{System: System{Root: "/dev/null", Devices: []string{"/dev/./null"}}}.nodes()
	if err != nil || nodes[len(nodes)-1].Number != unix.Mkdev(1, 3) {
		t.Errorf("got %v, %v", nodes, err)
	}
	if _, err := (entry{System: System{Root: "/tmp/null"}}).nodes(); err == nil ||
		!strings.Contains(err.Error(), "/tmp/null") {
		t.Errorf("got %v, want an error that names the path outside /dev", err)
	}
}
