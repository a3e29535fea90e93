package demo_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/demo"
	"ironroot/lab/qemu"
)

const mib = 1 << 20

// run runs the demonstration with the built ramdisk. The console's log stays in the report's directory.
func run(t *testing.T, o demo.Options) *demo.Report {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "qemu-system-x86_64", "mmdebstrap", "mke2fs", "mformat", "qemu-img")
	o.Kernel = testenv.Build(t, "ipa-ironroot-amd64.kernel")
	o.Initramfs = testenv.Build(t, "ipa-ironroot-amd64.initramfs")
	o.Out = t.TempDir()
	o.Progress = t.Output()
	o.Limit = 45 * time.Minute // a run takes minutes on an idle host
	report, err := demo.Run(testenv.Context(t, time.Hour), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Violations) > 0 {
		t.Errorf("the agent broke the protocol: %q", report.Violations)
	}
	return report
}

// console returns the node's serial console output.
func console(t *testing.T, r *demo.Report) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.Dir, "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	return qemu.Plain(string(text))
}

// A node with 320 MiB of memory that boots from the network deploys an image that is larger than its memory.
func TestDemoNetwork(t *testing.T) {
	r := run(t, demo.Options{Boot: demo.Network, Memory: 320 * mib})
	if size := r.Artefacts[2].Size; size <= 320*mib {
		t.Errorf("the image has %d MiB, want more than the node's memory", size/mib)
	}
	text := console(t, r)
	if !strings.Contains(text, "INSTANCE-UP instance") || !strings.Contains(text, "CONFIG-DRIVE "+r.Drive) {
		t.Errorf("the console does not show the instance and its config drive %s", r.Drive)
	}
	if strings.Contains(text, r.Token) {
		t.Error("the agent token is on the console")
	}
	for _, want := range []string{
		"inspection data received", "first heartbeat", "cleaning finished", "image written", "boot loader installed",
	} {
		if !slices.ContainsFunc(r.Timeline, func(m demo.Moment) bool { return strings.HasPrefix(m.Text, want) }) {
			t.Errorf("the timeline has no %q", want)
		}
	}
}

// A node with Secure Boot boots the ISO, and deploys an image in the format QCOW2.
func TestDemoISO(t *testing.T) {
	r := run(t, demo.Options{Boot: demo.ISO, Firmware: qemu.UEFISecure, QCOW2: true})
	// The boot loader prints the command line, which contains the token as with Ironic. The agent must not repeat it.
	if _, agent, _ := strings.Cut(console(t, r), "inspection"); strings.Contains(agent, r.Token) {
		t.Error("the agent token is on the console")
	}
}

func TestDemoBIOS(t *testing.T) {
	run(t, demo.Options{Boot: demo.Network, Firmware: qemu.BIOS})
}

func TestUnknownBoot(t *testing.T) {
	for _, o := range []demo.Options{
		{Boot: "floppy"}, {Arch: "riscv64"}, {Arch: "arm64", Boot: demo.Network}, {Arch: "arm64", Firmware: qemu.BIOS},
	} {
		o.Progress = io.Discard
		if _, err := demo.Run(t.Context(), o); err == nil {
			t.Errorf("%+v: got no error for a way to boot that does not exist", o)
		}
	}
}

// If a node never reports, the run fails with an error that says so, and prints the console.
func TestFailureIsToldWithTheConsole(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "qemu-system-x86_64", "mmdebstrap", "mke2fs", "mformat")
	var out strings.Builder
	dir := t.TempDir()
	broken, initramfs := filepath.Join(dir, "kernel"), filepath.Join(dir, "initramfs")
	if err := errors.Join(os.WriteFile(broken, testenv.BzImage(4096), 0o600),
		os.WriteFile(initramfs, testenv.Archive(t), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := demo.Run(t.Context(), demo.Options{
		Kernel: broken, Initramfs: initramfs, Out: t.TempDir(), Firmware: qemu.BIOS, Progress: &out,
		Limit: time.Minute, // the firmware of a busy host needs many seconds for its first line
	})
	if err == nil || !strings.Contains(err.Error(), "1m0s") {
		t.Errorf("got error %v, want one that names the limit of a minute", err)
	}
	for _, want := range []string{"end of the node's console", "SeaBIOS", "FAILED", "console.log"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not contain %q:\n%s", want, out.String())
		}
	}
}
