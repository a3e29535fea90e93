//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
	"ironroot/lab/qemu"
)

// TestLittleMemory inspects, cleans and deploys a machine with 256 MiB of memory. The image is six times as large.
//
// Parity: R11 (memory)
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	const imageSize, limit = 1536 * mib, 40 * time.Minute
	image := gptImage(t, "gpt", imageSize)
	checksum := sumAll(t, image)
	disk := file(t, "disk", 5<<30, nil)
	patch(t, disk, 0, bytes.Repeat([]byte("old table"), 1000))
	r := start(t, setup{
		machine: qemu.Config{Memory: 256 * mib, Disks: []qemu.Disk{{File: disk}}},
		prepare: func(r *rig, c *qemu.Config) {
			c.Append += fmt.Sprintf(" ipa-inspection-callback-url=https://%s:%d/v1/continue_inspection"+
				" ipa-inspection-collectors=default,logs,pci-devices", host, apiPort)
			r.node.SetState(conductor.InspectWait)
		},
	})
	ctx := testenv.Context(t, limit)
	if err := r.node.WaitInspection(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.node.Clean(ctx); err != nil {
		t.Fatal(err)
	}
	if got := read(t, disk, 0, mib); !bytes.Equal(got, make([]byte, mib)) {
		t.Error("the disk's first MiB is not zero after cleaning")
	}
	r.images.File("gpt.raw", image)
	drive, err := conductor.ConfigDrive(map[string]any{"uuid": "5d1c9e5e-6f1c-4f0e-8a42-7f0a2d6f9c12"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.node.SetState(conductor.DeployWait)
	source := conductor.Image{URL: r.images.URLFrom(host, "gpt.raw"), Format: "raw", Checksum: checksum}
	if err := r.node.WriteImage(ctx, source, drive); err != nil {
		t.Fatal(err)
	}
	checkGPT(t, image, disk)
}
