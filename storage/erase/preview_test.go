package erase

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// previewedFull calls preview and then full, and compares them: preview changes nothing, and returns the method of full
// unless a command failed, and the errors that full returns before it erases.
func previewedFull(
	ctx context.Context, t *testing.T, sys sysfs.Root, d block.Device, o Options, open openers,
) (Method, error) {
	t.Helper()
	if open.identify == nil {
		open.identify = open.nvme
	}
	before := testenv.Content(t, d.Path)
	expected, previewErr := preview(t.Context(), sys, d, o, open)
	if !bytes.Equal(testenv.Content(t, d.Path), before) {
		t.Error("preview changed the medium")
	}
	method, err := full(ctx, sys, d, o, open)
	fellBack := o.ContinueOnFailure && method == Overwrite || strings.Contains(string(method), "failed")
	switch {
	case previewErr == nil && err == nil && expected != method && !fellBack:
		t.Errorf("preview: got %q, full used %q", expected, method)
	case previewErr != nil && err == nil && !errors.Is(previewErr, ErrLocked) && !errors.Is(previewErr, errRejects):
		t.Errorf("preview: got error %v, full succeeded with %q", previewErr, method)
	}
	for _, early := range []error{ErrReadOnly, ErrZoned, ErrRemains, ErrTCGLocked} {
		if errors.Is(err, early) && !errors.Is(previewErr, early) {
			t.Errorf("preview: got error %v (method %q), full returned %v", previewErr, expected, err)
		}
	}
	return method, err
}
