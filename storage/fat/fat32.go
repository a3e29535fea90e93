package fat

import (
	"context"
	"math"
)

const (
	minFAT32    = 512 << 20  // minimum size in bytes of a FAT32 volume, as in mkfs.vfat
	maxFAT32    = 0x0ffffff4 // maximum number of clusters; higher numbers have special meanings
	rootCluster = 2
	// Sectors before the first FAT.
	reserved32 = 32
	infoAt     = 1
	backupAt   = 6 // a copy of the boot sector, followed by one of the information sector
)

// layout32 chooses the size of a cluster by the table of Microsoft and mkfs.vfat. FATs and clusters are aligned to
// multiples of it.
func (v Volume) layout32() *writer {
	f := &writer{sector: v.Sector, bits: 32, next: rootCluster, cluster: 4 << 10}
	for size := int64(8 << 30); size < v.Size && f.cluster < maxCluster; size *= 2 {
		f.cluster *= 2
	}
	up := func(n int64) int64 { return (n + f.cluster - 1) / f.cluster * f.cluster }
	size := min(v.Size, math.MaxUint32*v.Sector)
	f.reserved = up(reserved32 * v.Sector)
	f.length = up((min(size/f.cluster, maxFAT32) + 2) * 4)
	f.data = f.reserved + copies*f.length
	f.clusters = uint32(min((size-f.data)/f.cluster, maxFAT32))
	f.set(0, 0x0ffffff8)
	f.set(1, endOfChain)
	return f
}

// spare writes the information sector and the copies of it and of the boot sector.
func (f *writer) spare(v Volume) error {
	info := encode(infoSector{
		Lead: infoLead, Structure: infoStruct, Free: f.clusters + 2 - f.next, Next: f.next - 1,
		Signature: bootSignature,
	}, int(f.sector))
	for sector, content := range map[int64][]byte{infoAt: info, backupAt: f.boot(v), backupAt + infoAt: info} {
		if _, err := f.w.WriteAt(content, sector*f.sector); err != nil {
			return err
		}
	}
	return nil
}

// zero makes a range read as zeros.
func (f *writer) zero(ctx context.Context, off, length int64) error {
	if z, ok := f.w.(interface {
		Zero(ctx context.Context, off, length int64) error
	}); ok {
		return z.Zero(ctx, off, length)
	}
	zeros := make([]byte, min(length, blankHead))
	for length > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(length, int64(len(zeros)))
		if _, err := f.w.WriteAt(zeros[:n], off); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}
