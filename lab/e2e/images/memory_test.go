//go:build linux

package images

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/iso"
	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// littleMemory is the memory, in bytes, of the smallest machine.
const littleMemory = 256 * rig.MiB

// TestLittleMemory inspects, cleans and deploys a machine with 256 MiB of memory. The image is six times as large.
//
// Parity: R11 (memory)
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	deployLittle(t, rig.Setup{})
}

// TestLittleMemoryUEFI does the same on a machine with UEFI.
//
// Parity: R11 (memory)
func TestLittleMemoryUEFI(t *testing.T) {
	t.Parallel()
	deployLittle(t, rig.Setup{Machine: qemu.Config{Firmware: qemu.UEFI}})
}

// TestLittleMemoryISO starts machines with 256 MiB of memory from an ISO, to the first heartbeat.
//
// Parity: R11 (memory)
func TestLittleMemoryISO(t *testing.T) {
	t.Parallel()
	for _, firmware := range []qemu.Firmware{qemu.BIOS, qemu.UEFI} {
		t.Run(string(firmware), func(t *testing.T) {
			r := rig.Start(t, rig.Setup{
				Machine: qemu.Config{Memory: littleMemory, Firmware: firmware, CDBoot: 1},
				Prepare: func(_ *rig.Rig, c *qemu.Config) {
					c.CDROM = filepath.Join(t.TempDir(), "boot.iso")
					_, err := iso.Build(t.Context(), iso.Options{
						Kernel: c.Kernel, Initrd: c.Initrd, Out: c.CDROM, Cmdline: c.Append,
					})
					if err != nil {
						t.Fatal(err)
					}
					c.Kernel, c.Initrd, c.Append = "", "", ""
				},
			})
			r.WaitAgent(t)
		})
	}
}

// deployLittle inspects, cleans and deploys a machine with 256 MiB of memory.
func deployLittle(t *testing.T, s rig.Setup) {
	t.Helper()
	const imageSize, limit = 1536 * rig.MiB, 40 * time.Minute
	image := gptImage(t, "gpt", imageSize)
	checksum := rig.SumAll(t, image)
	disk := rig.File(t, "disk", 5<<30, nil)
	rig.Patch(t, disk, 0, bytes.Repeat([]byte("old table"), 1000))
	s.Machine.Memory, s.Machine.Disks = littleMemory, []qemu.Disk{{File: disk}}
	s.Prepare = func(r *rig.Rig, c *qemu.Config) {
		c.Append += fmt.Sprintf(" ipa-inspection-callback-url=https://%s:%d/v1/continue_inspection"+
			" ipa-inspection-collectors=default,logs,pci-devices", rig.Host, rig.APIPort)
		r.Node.SetState(conductor.InspectWait)
	}
	r := rig.Start(t, s)
	ctx := testenv.Context(t, limit)
	if err := r.Node.WaitInspection(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Node.Clean(ctx); err != nil {
		t.Fatal(err)
	}
	if got := rig.Read(t, disk, 0, rig.MiB); !bytes.Equal(got, make([]byte, rig.MiB)) {
		t.Error("the disk's first MiB is not zero after cleaning")
	}
	r.Images.File("gpt.raw", image)
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": "5d1c9e5e-6f1c-4f0e-8a42-7f0a2d6f9c12"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Node.SetState(conductor.DeployWait)
	source := conductor.Image{URL: r.Images.URLFrom(rig.Host, "gpt.raw"), Format: "raw", Checksum: checksum}
	if err := r.Node.WriteImage(ctx, source, drive); err != nil {
		t.Fatal(err)
	}
	rig.CheckGPT(t, image, disk)
}
