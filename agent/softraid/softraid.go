package softraid

import (
	"context"
	"errors"
	"log/slog"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// Options describe a machine, its node object, and the operator's settings for its arrays.
type Options struct {
	Node   *node.Node // may be nil
	System sysfs.Root
	Disks  Disks
	Kernel Kernel // nil means this machine's
	Log    *slog.Logger
	Limits func(block.Device) timelimit.Limits // time limits of operations on one disk

	Guard  bool       // whether disks with shared file systems are refused
	Wait   erase.Wait // for the holders of a disk
	UEFI   bool       // whether the instance boots by UEFI
	Scheme string     // of new partition tables
}

// Disks lists the disks of a machine.
type Disks interface {
	// List returns the disks that all hardware managers together report.
	List(ctx context.Context) ([]block.Device, error)
	// Local returns the disks of a list that RAID steps may change, and those that they leave as they are because they
	// are reached over a network.
	Local(disks []block.Device) (local, remote []block.Device, err error)
}

// Kernel creates and runs arrays.
type Kernel interface {
	List(ctx context.Context) ([]raid.Status, error)
	Create(ctx context.Context, o raid.Options) (path string, err error)
	Assemble(ctx context.Context, number int, uuid string, members []string) (path string, err error)
	Resync(path string) error
	Stop(ctx context.Context, path string) error
	// Check and CheckWritten check the members of a running array, see [raid.Check] and [raid.CheckWritten].
	Check(path, level string, members []string) error
	CheckWritten(path, level string, members []string) error
	// Wipe removes the metadata of what is on a new array.
	Wipe(ctx context.Context, path string, wait erase.Wait) error
}

// NewKernel returns the kernel of this machine.
func NewKernel(sys sysfs.Root) Kernel { return kernel{sys} }

type kernel struct{ sys sysfs.Root }

func (k kernel) List(ctx context.Context) ([]raid.Status, error) { return raid.List(ctx, k.sys) }

func (k kernel) Create(ctx context.Context, o raid.Options) (string, error) {
	return raid.Create(ctx, k.sys, o)
}

func (k kernel) Assemble(ctx context.Context, number int, uuid string, members []string) (string, error) {
	return raid.Assemble(ctx, k.sys, number, uuid, members)
}

func (k kernel) Resync(path string) error { return raid.Resync(path) }

func (k kernel) Stop(ctx context.Context, path string) error { return raid.Stop(ctx, path) }

func (k kernel) Check(path, level string, members []string) error {
	return raid.Check(k.sys, path, level, members)
}

func (k kernel) CheckWritten(path, level string, members []string) error {
	return raid.CheckWritten(k.sys, path, level, members)
}

func (k kernel) Wipe(ctx context.Context, path string, wait erase.Wait) error {
	return erase.Metadata(ctx, k.sys, path, wait)
}

// Arrays creates, deletes and assembles the arrays of a node on the disks of a machine.
type Arrays struct {
	o Options
}

// New returns the arrays of a machine.
func New(o Options) *Arrays {
	if o.Kernel == nil {
		o.Kernel = NewKernel(o.System)
	}
	return &Arrays{o}
}

// membersOn reads the members of arrays on a disk and its partitions, with the time limits of the disk.
func (r *Arrays) membersOn(ctx context.Context, d block.Device) ([]raid.Member, error) {
	return timelimit.Do(ctx, r.o.Limits(d), func(ctx context.Context) ([]raid.Member, error) {
		return raid.Members(ctx, r.o.System, d)
	})
}

// limitDisk calls a function that reads or writes a disk, with the time limits of the disk.
func (r *Arrays) limitDisk(ctx context.Context, d block.Device, call func(context.Context) error) error {
	return timelimit.Run(ctx, r.o.Limits(d), call)
}

// toFault converts an error of a RAID step to an error of the protocol, unless the step was cancelled.
func toFault(ctx context.Context, err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	if errors.Is(err, erase.ErrProtected) {
		return fault.ProtectedDevice("%w", err)
	}
	return fault.SoftwareRAID("%w", err)
}
