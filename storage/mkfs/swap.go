package mkfs

import (
	"context"
	"encoding/binary"
	"math"

	"ironroot/internal/ondisk"
)

const (
	swapPage    = 4096 // bytes; of x86-64, and of the usual kernels for arm64
	minSwap     = 10 * swapPage
	maxPages    = math.MaxUint32 // 16 TiB; the rest of a larger device is not used
	swapVersion = 1
)

// swapHeader is the first page of a swap area (union swap_header in Linux's include/linux/swap.h).
type swapHeader struct {
	Boot     [1024]byte // for a disk label
	Version  uint32
	LastPage uint32
	BadPages uint32
	UUID     [16]byte
	Label    [16]byte
	_        [3018]byte // padding, and the numbers of bad pages
	Magic    [10]byte
}

// makeSwap writes the header of a swap area of version 1.
func makeSwap(_ context.Context, d *device, v volume) error {
	h := swapHeader{
		Version: swapVersion, LastPage: uint32(min(d.size/swapPage-1, maxPages)),
		UUID: [16]byte(v.uuid), Magic: [10]byte([]byte("SWAPSPACE2")),
	}
	copy(h.Label[:], v.label)
	page := make([]byte, swapPage)
	ondisk.Encode(page, binary.LittleEndian, h)
	return d.finish(page, 0)
}
