// Package disktest lists disks as a test wants them.
package disktest

import (
	"context"

	"ironroot/storage/block"
)

// Lister is a [block.Lister] that calls a function of the test.
type Lister func(ctx context.Context) ([]block.Device, error)

// Disks implements [block.Lister].
func (l Lister) Disks(ctx context.Context) ([]block.Device, error) { return l(ctx) }

// List is a [block.Lister] whose disks do not change.
type List []block.Device

// Disks implements [block.Lister].
func (l List) Disks(context.Context) ([]block.Device, error) { return l, nil }
