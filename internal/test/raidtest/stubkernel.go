package raidtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// StubKernel stands in for the kernel when arrays that exist are assembled and stopped, and fails as a test wants: the
// device of each array is a loop device. Unlike [FakeKernel] it does not pass [Cases], and it creates no arrays.
type StubKernel struct {
	Kernel // nil: methods that are not below panic

	OnStop func(path string) error // nil is no error

	Devices map[string]block.Device // by UUID
	Running []raid.Status
	Calls   []string

	ListErr, AssembleErr, WrittenErr, StopErr error

	members []raid.Member
}

// Attach adds the arrays on disks, by the members on the first one. Their devices are full of bytes of a tenant.
func (k *StubKernel) Attach(t *testing.T, disks []block.Device) {
	t.Helper()
	k.Devices = map[string]block.Device{}
	members, err := raid.Members(t.Context(), sysfs.Root{}, disks[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range members {
		device := BlankDisk(t, DiskSize)
		testenv.Fill(t, device.Path, 0, DiskSize, "tenant! ")
		k.Devices[member.UUID] = device
	}
	k.members = members
}

// name returns the name of the array with a device path.
func (k *StubKernel) name(path string) string {
	for uuid, d := range k.Devices {
		if d.Path == path {
			for _, member := range k.members {
				if member.UUID == uuid {
					return member.ShortName()
				}
			}
		}
	}
	return path
}

// List implements softraid.Kernel.
func (k *StubKernel) List(context.Context) ([]raid.Status, error) { return k.Running, k.ListErr }

// Assemble implements softraid.Kernel.
func (k *StubKernel) Assemble(_ context.Context, number int, uuid string, paths []string) (string, error) {
	if k.AssembleErr != nil {
		return "", k.AssembleErr
	}
	path := k.Devices[uuid].Path
	k.Calls = append(k.Calls, fmt.Sprintf("assemble md%d %s of %d", number, k.name(path), len(paths)))
	return path, nil
}

// Stop implements softraid.Kernel.
func (k *StubKernel) Stop(ctx context.Context, path string) error {
	k.Calls = append(k.Calls, "stop "+k.name(path))
	if k.OnStop != nil {
		return k.OnStop(path)
	}
	return errors.Join(ctx.Err(), k.StopErr)
}

// Resync implements softraid.Kernel.
func (k *StubKernel) Resync(path string) error {
	k.Calls = append(k.Calls, "resync "+k.name(path))
	return nil
}

// CheckWritten implements softraid.Kernel.
func (k *StubKernel) CheckWritten(path, level string, paths []string) error {
	k.Calls = append(k.Calls, fmt.Sprintf("check %s %s of %d", k.name(path), level, len(paths)))
	return k.WrittenErr
}
