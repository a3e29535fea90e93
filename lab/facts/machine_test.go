package facts

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/qemu"
)

// guestTimeout is the time limit for a machine from its start to its results, which take a minute on an idle host.
const guestTimeout = 20 * time.Minute

// tools returns the packages with the programs that describe a machine.
func tools() []string {
	return []string{
		"dmidecode", "ethtool", "ipmitool", "iproute2", "lshw", "pciutils", "udev", "usbutils", "util-linux",
	}
}

// examine boots a machine with the disks of c and those that the guest requires, and returns its results.
func examine(t *testing.T, c qemu.Config, disks int, parameters string) found {
	t.Helper()
	testenv.Programs(t, "qemu-system-x86_64", "apt-get")
	debian := testenv.DebianDisk(t, "trixie", tools()...)
	dir := t.TempDir()
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Dir: testenv.Top(t), Out: dir, Name: "facts", Init: "ironroot/lab/facts/guest",
		ModuleGroups: []string{"server", "lab"},
	})
	if err != nil {
		t.Fatal(err)
	}
	results := filepath.Join(dir, "results")
	c.Name, c.Dir, c.Kernel, c.Initrd = "facts", dir, report.Kernel, report.Initramfs
	// The guest's udev would rename interfaces after the agent has brought them up, which kernels since 6.2 permit.
	c.Append = "console=ttyS0,115200n8 net.ifnames=0 " + qemu.KernelHints + " facts-disks=" + strconv.Itoa(disks+2) +
		" " + parameters
	c.Disks = append(c.Disks,
		qemu.Disk{Bus: qemu.Virtio, File: debian, Serial: "DEBIAN", ReadOnly: true},
		qemu.Disk{Bus: qemu.Virtio, File: results, Size: 64 << 20, Serial: "RESULTS"},
	)
	ctx := testenv.Context(t, guestTimeout)
	machine, err := qemu.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Stop() //nolint:errcheck // it has told all it knows
	waitFacts(ctx, t, machine)
	return unpack(t, results)
}

// waitFacts waits until the guest has written its results.
func waitFacts(ctx context.Context, t *testing.T, machine *qemu.Machine) {
	t.Helper()
	match, err := machine.Console().Follow(ctx, regexp.MustCompile(`FACTS-(DONE|FAILED.*)`))
	if err != nil {
		t.Fatalf("%v\n%s", err, machine.Console().Tail(60))
	}
	if text := match.Groups[0]; text != "FACTS-DONE" {
		t.Fatalf("%s\n%s", text, machine.Console().Tail(60))
	}
}

// unpack returns the content of the archive that the guest wrote to a disk.
func unpack(t *testing.T, disk string) found {
	t.Helper()
	file, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f := found{}
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return f
		}
		if err != nil {
			t.Fatalf("results: %v", err)
		}
		if f[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatalf("results: %v", err)
		}
	}
}
