//go:build linux

package boot_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
	"ironroot/uinit/boot"
)

// machineTimeout is the time limit for what takes seconds on an idle machine. The start of a machine takes minutes on a
// busy host without hardware virtualisation.
const machineTimeout = 10 * time.Minute

// guest boots a ramdisk whose /init is the program of that name in testdata, with Debian's small kernel. change may
// alter the machine's configuration.
func guest(t *testing.T, program, cmdline string, change func(*qemu.Config)) *qemu.Machine {
	t.Helper()
	return start(t, ramdisk(t, initramfs.Options{
		Package: "linux-image-cloud-amd64", ModuleGroups: []string{"none"}, Init: programs + program,
	}), cmdline, change)
}

// programs is the prefix of the packages of programs in testdata.
const programs = "ironroot/uinit/boot/testdata/"

// ramdisks holds the ramdisks that this process has built. They are in boot.RamdiskDir.
var ramdisks struct {
	mu    sync.Mutex
	built map[string]initramfs.Report
}

// ramdisk builds a ramdisk, or returns the one that another test has built with the same options.
func ramdisk(t *testing.T, o initramfs.Options) initramfs.Report {
	t.Helper()
	testenv.Programs(t, "apt-get")
	ramdisks.mu.Lock()
	defer ramdisks.mu.Unlock()
	key := fmt.Sprintf("%+v", o)
	if report, ok := ramdisks.built[key]; ok {
		return report
	}
	if boot.RamdiskDir == "" {
		dir, err := os.MkdirTemp("", "ramdisks")
		if err != nil {
			t.Fatal(err)
		}
		boot.RamdiskDir, ramdisks.built = dir, map[string]initramfs.Report{}
	}
	o.Out, o.Dir = filepath.Join(boot.RamdiskDir, strconv.Itoa(len(ramdisks.built))), testenv.Top(t)
	report, err := initramfs.Build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ramdisks.built[key] = report
	return report
}

// delivered returns the ramdisk that make build has built.
func delivered(t *testing.T) initramfs.Report {
	t.Helper()
	return initramfs.Report{
		Kernel:    testenv.Build(t, "ipa-ironroot-amd64.kernel"),
		Initramfs: testenv.Build(t, "ipa-ironroot-amd64.initramfs"),
	}
}

func start(t *testing.T, report initramfs.Report, cmdline string, change func(*qemu.Config)) *qemu.Machine {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64")
	c := qemu.Config{
		Name: t.Name(), Dir: t.TempDir(), Memory: 384 << 20, Kernel: report.Kernel, Initrd: report.Initramfs,
		Append: "console=ttyS0 " + qemu.KernelHints + " " + cmdline, OnReboot: qemu.Shutdown,
	}
	if change != nil {
		change(&c)
	}
	m, err := qemu.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	return m
}

// expect waits for each expression in turn.
func expect(t *testing.T, m *qemu.Machine, expressions ...string) {
	t.Helper()
	ctx := testenv.Context(t, machineTimeout)
	for _, e := range expressions {
		if _, err := m.Console().Follow(ctx, regexp.MustCompile(e)); err != nil {
			t.Fatalf("%q: %v; the console ends with\n%s", e, err, m.Console().Tail(30))
		}
	}
}

// restarts waits until the machine asks for a restart, which here ends QEMU.
func restarts(t *testing.T, m *qemu.Machine) {
	t.Helper()
	ctx := testenv.Context(t, machineTimeout)
	if err := m.Wait(ctx); err != nil {
		t.Fatalf("no restart: %v; the console ends with\n%s", err, m.Console().Tail(30))
	}
}

// The machine keeps running after its work has ended, until Ctrl-Alt-Delete restarts it.
func TestSuccess(t *testing.T) {
	// The kernel parameters turn the restrictions off, process 1 turns them on.
	m := guest(t, "success", "sysctl.kernel.dmesg_restrict=0 sysctl.kernel.kptr_restrict=0", nil)
	expect(t, m, "ironroot starts", `the work is done.*dmesg_restrict=1 kptr_restrict=1`, "finished")
	if !m.Running() {
		t.Error("the machine stopped after its work")
	}
	if bytes.Contains([]byte(m.Console().String()), []byte("root file system incomplete")) {
		t.Errorf("a mount failed:\n%s", m.Console().Tail(40))
	}
	keys := []map[string]any{}
	for _, key := range []string{"ctrl", "alt", "delete"} {
		keys = append(keys, map[string]any{"type": "qcode", "data": key})
	}
	if _, err := m.QMP(t.Context(), "send-key", map[string]any{"keys": keys}); err != nil {
		t.Fatal(err)
	}
	expect(t, m, "asked to stop", "syncing and unmounting file systems")
	restarts(t, m)
}

// A rescue hides secrets in the kernel's log, also if they are in a part that an operator has cleared, and keeps what
// was written later. Secrets are the values of all parameters with one name, and one that the kernel has truncated.
func TestClearedKernelLog(t *testing.T) {
	const secrets = "rootpwd=planted-first rootpwd=planted-last padding="
	before := len("console=ttyS0 ") + len(qemu.KernelHints) + 1 + len(secrets)
	const truncated, end = 850, 1200 // the kernel truncates the line in between
	m := guest(t, "kernellog", secrets+strings.Repeat("x", truncated-before)+
		" x_password=planted-"+strings.Repeat("y", end-truncated), nil)
	expect(t, m,
		"booted secret_in_syslog=true secret_in_kmsg=true line_in_syslog=false line_in_kmsg=false err=<nil>",
		"cleared secret_in_syslog=false secret_in_kmsg=true line_in_syslog=true line_in_kmsg=true err=<nil>",
		"hidden secret_in_syslog=false secret_in_kmsg=false line_in_syslog=true line_in_kmsg=true err=<nil>",
		"finished")
}

// Parity: R8
func TestFailureStartsAgain(t *testing.T) {
	m := guest(t, "fail", "", nil)
	expect(t, m, "work failed, restarting.*try 1 went wrong", "work failed, restarting.*try 2 went wrong",
		"try 3 went well")
	if !m.Running() {
		t.Error("process 1 ended with its work")
	}
}

func TestPanic(t *testing.T) {
	m := guest(t, "panic", "panic=2", nil)
	expect(t, m, "panic in .*: the work exploded", `main\.explode`, "the machine restarts in 2s")
	restarts(t, m)
}

func TestPanicOfForeignGoroutine(t *testing.T) {
	m := guest(t, "panic", "panic=1 test.foreign=1", nil)
	expect(t, m, "panic: the work exploded", `main\.explode`, "Attempted to kill init")
	restarts(t, m)
}

// If reboot(2) fails, the kernel's sysrq restarts the machine or switches it off.
//
// Parity: E3
func TestSysrq(t *testing.T) {
	const refused = "reboot.2. failed, trying sysrq.*operation not permitted"
	t.Run("restart", func(t *testing.T) {
		m := guest(t, "sysrq", "", func(c *qemu.Config) { c.OnReboot = qemu.Reset })
		expect(t, m, refused)
		happens(t, m, "RESET")
	})
	t.Run("power off", func(t *testing.T) {
		m := guest(t, "sysrq", "test.stop=off", func(c *qemu.Config) { c.OnReboot = qemu.Reset })
		expect(t, m, refused)
		happens(t, m, "SHUTDOWN")
		restarts(t, m) // in this case: QEMU ends
	})
}

// happens waits for an event of QEMU that the guest caused.
func happens(t *testing.T, m *qemu.Machine, event string) {
	t.Helper()
	ctx := testenv.Context(t, machineTimeout)
	e, err := m.WaitEvent(ctx, event, 1)
	if err != nil ||
		!bytes.Contains(e.Data, []byte(`"guest": true`)) && !bytes.Contains(e.Data, []byte(`"guest":true`)) {
		t.Fatalf("got event %s %s and %v, want %s by the guest; the console ends with\n%s",
			e.Name, e.Data, err, event, m.Console().Tail(30))
	}
}

// A serial port that accepts no data prevents neither the restart nor that another one shows the panic.
func TestPanicOnStuckConsole(t *testing.T) {
	second := filepath.Join(t.TempDir(), "ttyS1")
	m := guest(t, "panic", "console=ttyS1 panic=1 test.foreign=1 test.stuck=1", func(c *qemu.Config) {
		c.Extra = []string{"-chardev", "file,id=second,path=" + second, "-device", "isa-serial,chardev=second"}
	})
	restarts(t, m)
	text, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"panic: the work exploded", "main.explode", "created by main.main"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the second console lacks %q; it ends with\n%s", want, text[max(0, len(text)-2000):])
		}
	}
}

func TestPanicStays(t *testing.T) {
	m := guest(t, "panic", "panic=0", nil)
	expect(t, m, "the work exploded", "the machine stays as it is")
	if !m.Running() {
		t.Error("the machine restarted with panic=0")
	}
}

func TestReaperLeavesChildrenAlone(t *testing.T) {
	expect(t, guest(t, "reap", "", nil), "children and orphans are well")
}

func TestStarvedRandomSource(t *testing.T) {
	m := guest(t, "success", "random.trust_cpu=off random.trust_bootloader=off", func(c *qemu.Config) {
		c.Accel = "tcg"
		c.Extra = []string{"-cpu", "qemu64"} // no RDRAND; and this kernel has virtio-rng's driver as a module
	})
	expect(t, m, "random source of the kernel not ready", "the work is done")
}

func TestTruncatedArchive(t *testing.T) {
	report := ramdisk(t, initramfs.Options{
		Package: "linux-image-cloud-amd64", ModuleGroups: []string{"virtual"}, Init: programs + "success",
	})
	// When memory runs out, the kernel unpacks only the front of the archive. The uncompressed part at its end is cut.
	data, err := os.ReadFile(report.Initramfs)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(cut, data[:len(data)-1<<20], 0o644); err != nil {
		t.Fatal(err)
	}
	report.Initramfs = cut
	m := start(t, report, "panic=1", nil)
	expect(t, m, "THE RAMDISK IS INCOMPLETE", `it needs at least \d+ MiB`,
		"ramdisk incomplete: the machine restarts in 1s")
	restarts(t, m)
}

// The first command replaces the script of the shell by its program.
func TestShell(t *testing.T) {
	m := start(t, ramdisk(t, initramfs.Options{
		Package: "linux-image-cloud-amd64", ModuleGroups: []string{"none"}, Shell: true, Init: programs + "success",
	}), "ironroot.shell=1", nil)
	expect(t, m, "modules are loaded", `[$#>] `)
	if err := m.Console().Send("cat /etc/hosts; ls -l /bbin/bb\r"); err != nil {
		t.Fatal(err)
	}
	expect(t, m, `127\.0\.0\.1 localhost`, `-rwxr-xr-x .* \d{7} .*bb`)
}
