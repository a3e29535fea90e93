//go:build amd64 || arm64

package scsi

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// The offsets hold on 64-bit machines.
func TestHeader(t *testing.T) {
	var h sgHeader
	got := []uintptr{
		unsafe.Offsetof(h.data), unsafe.Offsetof(h.cdb), unsafe.Offsetof(h.sense), unsafe.Offsetof(h.timeout),
		unsafe.Offsetof(h.status), unsafe.Offsetof(h.senseWritten), unsafe.Offsetof(h.hostStatus),
		unsafe.Offsetof(h.residual), unsafe.Sizeof(h),
	}
	// offsetof and sizeof of struct sg_io_hdr, from scsi/sg.h.
	if diff := cmp.Diff([]uintptr{16, 24, 32, 40, 64, 67, 68, 72, 88}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
