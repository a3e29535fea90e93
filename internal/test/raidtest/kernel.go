// Package raidtest has a kernel of software RAID for tests, and makes disks with members of arrays.
package raidtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/md"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// Kernel stands in for the kernel when arrays are created and deleted: it writes the superblocks and runs nothing. It
// lists the arrays of System. It implements softraid.Kernel.
type Kernel struct {
	System sysfs.Root

	Created, Checked, Wiped, Stopped []string // calls

	Fail     map[string]error // by names of arrays
	CheckErr error
	Write    bool // superblocks

	OnStop func(path string) error // nil is no error
	OnWipe func(ctx context.Context) error
}

// List implements softraid.Kernel.
func (k *Kernel) List(ctx context.Context) ([]raid.Status, error) { return raid.List(ctx, k.System) }

// Create implements softraid.Kernel.
func (k *Kernel) Create(_ context.Context, o raid.Options) (string, error) {
	n := md.New{Version: o.Version, Level: o.Level, Name: o.Name}
	for _, path := range o.Members {
		d, err := block.Find(sysfs.Root{}, path)
		if err != nil {
			return "", err
		}
		n.Sizes = append(n.Sizes, d.Size)
	}
	if err := n.Check(); err != nil {
		return "", err
	}
	if k.Write {
		members, err := n.Encode(time.Unix(1700000000, 0))
		if err != nil {
			return "", err
		}
		for i, path := range o.Members {
			for _, b := range members[i] {
				if err := WriteAt(path, b.Offset, b.Data); err != nil {
					return "", err
				}
			}
		}
	}
	k.Created = append(k.Created, fmt.Sprintf("md%d %s %s %s", o.Number, o.Level, o.Name, o.Version))
	return fmt.Sprintf("/dev/md%d", o.Number), k.Fail[o.Name]
}

// Check implements softraid.Kernel.
func (k *Kernel) Check(path, level string, members []string) error {
	k.Checked = append(k.Checked, fmt.Sprint(path, " ", level, " ", members))
	return k.CheckErr
}

// Wipe implements softraid.Kernel.
func (k *Kernel) Wipe(ctx context.Context, path string, _ erase.Wait) error {
	k.Wiped = append(k.Wiped, path)
	if k.OnWipe != nil {
		return k.OnWipe(ctx)
	}
	return nil
}

// Stop implements softraid.Kernel.
func (k *Kernel) Stop(_ context.Context, path string) error {
	k.Stopped = append(k.Stopped, path)
	if k.OnStop != nil {
		return k.OnStop(path)
	}
	return nil
}

// Assemble returns an error: Kernel runs no arrays.
func (k *Kernel) Assemble(context.Context, int, string, []string) (string, error) {
	return "", errors.ErrUnsupported
}

// Resync returns an error.
func (k *Kernel) Resync(string) error { return errors.ErrUnsupported }

// CheckWritten returns an error.
func (k *Kernel) CheckWritten(string, string, []string) error { return errors.ErrUnsupported }
