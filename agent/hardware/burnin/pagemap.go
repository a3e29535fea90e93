package burnin

import (
	"encoding/binary"
	"io"
	"os"

	"ironroot/storage/sysfs"
)

// physicalAddress returns the physical address of an address of this process. It reads the page map
// (Documentation/admin-guide/mm/pagemap.rst of Linux), which shows page frames only to root.
func physicalAddress(sys sysfs.Root, address uint64) (uint64, bool) {
	f, err := os.Open(sys.Proc("self/pagemap"))
	if err != nil {
		return 0, false
	}
	defer f.Close() //nolint:errcheck // only read
	const (
		present   = 1 << 63
		frameMask = 1<<55 - 1
	)
	page := uint64(os.Getpagesize())
	var entry [8]byte
	if _, err := io.ReadFull(io.NewSectionReader(f, int64(address/page*8), 8), entry[:]); err != nil {
		return 0, false
	}
	value := binary.NativeEndian.Uint64(entry[:])
	frame := value & frameMask
	if value&present == 0 || frame == 0 {
		return 0, false
	}
	return frame*page + address%page, true
}
