//go:build !linux

package journal

import (
	"context"
	"errors"
	"fmt"

	"ironroot/storage/sysfs"
)

func packetFilter(context.Context, sysfs.Root) ([]byte, error) {
	return nil, fmt.Errorf("list rules of nf_tables: %w", errors.ErrUnsupported)
}
