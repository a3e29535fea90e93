//go:build linux

package disks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// TestSync cuts the power right after standby.sync. A file that was only in memory before is on the disk, a disk that
// refuses to flush only causes a warning, and the result is null. Without the command the file is lost, which shows
// that the test can fail.
//
// Parity: E4
func TestSync(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "qemu-system-x86_64", "apt-get", "mkfs.vfat", "mcopy")
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Dir: testenv.Top(t), Out: t.TempDir(), Package: "linux-image-cloud-amd64",
		ModuleGroups: []string{"virtual", "filesystems"}, Init: "ironroot/lab/e2e/guest/syncinit",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)

	got, console := contentAfterPowerCut(t, report, "", `SYNCED \{.*\}\s`)
	if !bytes.Equal(got, want) {
		t.Errorf("after standby.sync the disk has %d bytes of the file, want all %d", len(got), len(want))
	}
	for _, expression := range []string{
		`"command_status":"SUCCEEDED"`, `"command_result":null`, `not flushed.*device=/dev/null`,
	} {
		if !regexp.MustCompile(expression).MatchString(console) {
			t.Errorf("nothing on the console matches %q:\n%s", expression, console)
		}
	}
	if got, _ := contentAfterPowerCut(t, report, "nosync=1", `WRITTEN\s`); bytes.Equal(got, want) {
		t.Error("the file is on the disk without standby.sync too, so nothing was shown")
	}
}

// contentAfterPowerCut boots a machine, kills it when the line is on its console, and returns the content of the file
// on its disk.
func contentAfterPowerCut(
	t *testing.T, report initramfs.Report, parameters, line string,
) (content []byte, console string) {
	t.Helper()
	disk := testenv.SparseFile(t, 64<<20)
	testenv.Run(t, "mkfs.vfat", disk)
	ctx := rig.Soon(t)
	machine, err := qemu.Start(ctx, qemu.Config{
		Name: "sync", Dir: t.TempDir(), Memory: 384 << 20, Kernel: report.Kernel, Initrd: report.Initramfs,
		Append: "console=ttyS0 " + qemu.KernelHints + " " + parameters,
		Disks:  []qemu.Disk{{Bus: qemu.Virtio, File: disk}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = machine.Console().Follow(ctx, regexp.MustCompile(line+`|FAILED.*\s`))
	stopped := machine.Stop()
	console = machine.Console().String()
	if err != nil || stopped != nil {
		t.Fatalf("%v, %v; the console ends with\n%s", err, stopped, machine.Console().Tail(30))
	}
	if regexp.MustCompile(`FAILED`).MatchString(console) {
		t.Fatal(machine.Console().Tail(30))
	}
	out := filepath.Join(t.TempDir(), "content")
	if err := exec.CommandContext(ctx, "mcopy", "-i", disk, "::/content", out).Run(); err != nil {
		return nil, console // the file does not exist
	}
	if content, err = os.ReadFile(out); err != nil {
		t.Fatal(err)
	}
	return content, console
}
