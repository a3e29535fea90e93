package growfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

var drivers = []driver{{"ext4", growExt4}, {"xfs", growXFS}, {"btrfs", growBtrfs}}

// Numbers of ioctl(2): fs/ext4/ext4.h, fs/xfs/libxfs/xfs_fs.h and include/uapi/linux/btrfs.h of the kernel.
const (
	ext4ResizeFS  = 0x40086610 // EXT4_IOC_RESIZE_FS
	xfsGeometry   = 0x80705864 // XFS_IOC_FSGEOMETRY_V1
	xfsGrowFSData = 0x4010586e // XFS_IOC_FSGROWFSDATA
	btrfsResize   = 0x50009403 // BTRFS_IOC_RESIZE
)

func ioctl(f *os.File, number uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), number, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// growExt4 enlarges ext4. The driver omits a last group that is too small for its own structures.
func growExt4(root, device *os.File, deviceSize int64) (size, maxUnused int64, err error) {
	_, blockSize, err := ext4Size(device)
	if err != nil {
		return 0, 0, err
	}
	blocks := uint64(deviceSize / blockSize)
	if err := ioctl(root, ext4ResizeFS, unsafe.Pointer(&blocks)); err != nil {
		return 0, 0, fmt.Errorf("resize to %d blocks: %w", blocks, err)
	}
	size, _, err = ext4Size(device)
	return size, blockSize * 8 * blockSize, err // a group has as many blocks as a block has bits
}

// ext4Size reads the size of a file system and of its blocks in bytes from the superblock. The mounted file system and
// the device share the page cache, so the superblock is current.
func ext4Size(device io.ReaderAt) (size, blockSize int64, err error) {
	// struct ext4_super_block (fs/ext4/ext4.h)
	const at, magic, maxLog, has64Bit = 1024, 0xef53, 6, 0x80
	super := make([]byte, 1024)
	if _, err := device.ReadAt(super, at); err != nil {
		return 0, 0, fmt.Errorf("read the superblock: %w", err)
	}
	order := binary.LittleEndian
	log := order.Uint32(super[0x18:])
	if order.Uint16(super[0x38:]) != magic || log > maxLog {
		return 0, 0, errors.New("no valid superblock")
	}
	blocks := int64(order.Uint32(super[0x04:]))
	if order.Uint32(super[0x60:])&has64Bit != 0 {
		blocks |= int64(order.Uint32(super[0x150:])) << 32
	}
	if blocks < 0 || blocks > 1<<62>>(10+log) {
		return 0, 0, fmt.Errorf("superblock with %d blocks", blocks)
	}
	return blocks << (10 + log), 1024 << log, nil
}

// geometry is struct xfs_fsop_geom_v1.
type geometry struct {
	BlockSize, RTExtent, AGBlocks, AGCount, LogBlocks, SectorSize, InodeSize, InodePercent uint32

	DataBlocks uint64
	_          [72]byte
}

// growXFS enlarges XFS. The driver omits a last allocation group of less than 64 blocks.
func growXFS(root, _ *os.File, deviceSize int64) (size, maxUnused int64, err error) {
	var g geometry
	if err := ioctl(root, xfsGeometry, unsafe.Pointer(&g)); err != nil {
		return 0, 0, fmt.Errorf("read the geometry: %w", err)
	}
	if g.BlockSize == 0 {
		return 0, 0, errors.New("the geometry has blocks of 0 bytes")
	}
	blockSize := int64(g.BlockSize)
	// struct xfs_growfs_data
	request := struct {
		Blocks  uint64
		Percent uint32
		_       uint32
	}{Blocks: uint64(deviceSize / blockSize), Percent: g.InodePercent}
	if request.Blocks != g.DataBlocks {
		if err := ioctl(root, xfsGrowFSData, unsafe.Pointer(&request)); err != nil {
			return 0, 0, fmt.Errorf("grow to %d blocks: %w", request.Blocks, err)
		}
	}
	if err := ioctl(root, xfsGeometry, unsafe.Pointer(&g)); err != nil {
		return 0, 0, fmt.Errorf("read the geometry: %w", err)
	}
	const minGroup = 64 // XFS_MIN_AG_BLOCKS
	return int64(g.DataBlocks) * blockSize, minGroup * blockSize, nil
}

// growBtrfs enlarges Btrfs on its first device.
func growBtrfs(root, _ *os.File, _ int64) (size, maxUnused int64, err error) {
	var request [4096]byte // struct btrfs_ioctl_vol_args: a descriptor, and a text
	copy(request[8:], "max")
	if err := ioctl(root, btrfsResize, unsafe.Pointer(&request)); err != nil {
		return 0, 0, fmt.Errorf("resize to the maximum: %w", err)
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &s); err != nil {
		return 0, 0, err
	}
	const maxSector = 64 << 10
	return int64(s.Blocks) * s.Bsize, maxSector, nil
}
