package mkfs

import (
	"context"
	"encoding/binary"
	"math"
)

const (
	swapPage = 4096 // bytes: of x86-64, and of the usual kernels for arm64
	minSwap  = 10 * swapPage
	maxPages = math.MaxUint32 // 16 TiB; what lies behind is not used
)

// makeSwap writes the header of a swap area, version 1, as Linux's include/linux/swap.h has it (union swap_header).
func makeSwap(_ context.Context, d *device, v volume) error {
	page := make([]byte, swapPage)
	le := binary.LittleEndian
	le.PutUint32(page[1024:], 1) // version
	le.PutUint32(page[1028:], uint32(min(d.size/swapPage-1, maxPages)))
	copy(page[1036:1052], v.uuid)
	copy(page[1052:1068], v.label)
	copy(page[swapPage-10:], "SWAPSPACE2")
	return d.finish(page, 0)
}
