package chroot

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
	"ironroot/storage/block"
)

// The program cannot read anything that belongs to the ramdisk: command line, kernel log, kernel memory, settings of
// the kernel, devices of others.
func TestSecrets(t *testing.T) {
	s := system(t)
	other := testenv.Loop(t, testenv.SparseFile(t, 1<<20), 512)
	image := testenv.SparseFile(t, 4<<20)
	testenv.Run(t, "mkfs.ext4", "-q", image)
	mounted := testenv.Loop(t, image, 512)
	s.Devices = []string{mounted}
	s.Mounts = []Mount{{mounted, "ext4", "/nowhere"}, {mounted, "ext4", "/etc"}}
	t.Setenv("SECRET", "SECRET")
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
		if !strings.HasPrefix(want, "(?m)") && !strings.HasPrefix(want, "write ") && !strings.HasPrefix(want, "devices") {
			pattern = regexp.QuoteMeta(want)
		}
		if !regexp.MustCompile(pattern).MatchString(failed.Output) {
			t.Errorf("got no %s in the output:\n%s", want, failed.Output)
		}
	}
	if strings.Contains(failed.Output, name(other)) {
		t.Errorf("got %s, want only devices of the system", other)
	}
	left(t, s)
	if _, err := os.Stat(filepath.Join("/", "etc", "shadow")); err != nil {
		t.Errorf("the root of this machine changed: %v", err)
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
	if err != nil || nodes[len(nodes)-1].number != unix.Mkdev(1, 3) {
		t.Errorf("got %v, %v", nodes, err)
	}
	if _, err := (entry{System: System{Root: "/tmp/null"}}).nodes(); err == nil || !strings.Contains(err.Error(), "/tmp/null") {
		t.Errorf("got %v, want an error that names the path outside /dev", err)
	}
}
