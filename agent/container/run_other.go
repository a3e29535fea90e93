//go:build !linux

package container

import (
	"context"
	"errors"
	"fmt"

	"ironroot/storage/sysfs"
)

// Run returns an error: only Linux has what it needs.
func (b *Bundle) Run(context.Context, Spec) error { return Available() }

// Available returns an error: only Linux has what Run needs.
func Available() error { return fmt.Errorf("run containers: %w", errors.ErrUnsupported) }

// Child returns: no process is started for a container.
func Child() {}

// scratch is a mounted file system for an image.
type scratch struct {
	dir            string
	size, reserved int64
}

func (s *scratch) kind() string { return s.dir }

func (s *scratch) used() (int64, error) { return 0, Available() }

func (s *scratch) free(context.Context) error { return nil }

func memoryScratch(sysfs.Root, int64) (*scratch, error) { return nil, Available() }

func diskScratch(context.Context, sysfs.Root, string, demand) (*scratch, error) {
	return nil, Available()
}
