package raid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/md"
	"ironroot/storage/sysfs"
)

// Ioctls of linux/raid/md_u.h.
const (
	setArrayInfo = 0x40480923
	addNewDisk   = 0x40140921
	runArray     = 0x400c0930
	stopArray    = 0x932
	restartRW    = 0x934
)

// arrayInfo is mdu_array_info_t.
type arrayInfo struct {
	Major, Minor, Patch int32 // version of the superblock
	_                   [15]int32
}

// diskInfo is mdu_disk_info_t.
type diskInfo struct {
	Number, Major, Minor int32
	_                    [2]int32
}

const (
	mdMajor = 9
	// maxMinor is the highest number of an array: minor numbers have 20 bits.
	maxMinor = 1<<20 - 1
	// loadMinor is the number of an array that exists only until the module is loaded.
	loadMinor = 511
)

// Create writes the superblocks of a new array and starts it. Members must be free: they are opened exclusively, and
// none is written before all of them are checked. When Create returns, the kernel runs the array with all members. A
// level with redundancy is being resynced. If Create fails, it stops the array; members can have a superblock.
func Create(ctx context.Context, sys sysfs.Root, o Options) (path string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := writeMembers(o); err != nil {
		return "", fmt.Errorf("create array %q: %w", o.Name, err)
	}
	if path, err = start(sys, o); err != nil {
		return "", fmt.Errorf("create array %q: %w", o.Name, err)
	}
	return path, nil
}

// writeMembers writes the superblocks. It holds all members while it does.
func writeMembers(o Options) (err error) {
	array := md.New{Version: o.Version, Level: o.Level, Name: o.Name}
	var files []*os.File
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, member := range o.Members {
		f, err := os.OpenFile(member, os.O_RDWR|unix.O_EXCL, 0)
		if err != nil {
			return err
		}
		files = append(files, f)
		size, _, err := block.Geometry(f)
		if err != nil {
			return fmt.Errorf("%s: %w", member, err)
		}
		array.Sizes = append(array.Sizes, size)
	}
	members, err := array.Encode(time.Now())
	if err != nil {
		return err
	}
	for i, f := range files {
		if err := write(f, members[i]); err != nil {
			return err
		}
	}
	return nil
}

// start makes the kernel read the superblocks and run the array. After an error there is no array.
func start(sys sysfs.Root, o Options) (path string, err error) {
	f, err := open(sys, o.Number)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, closeArray(f, err)) }()
	if err := setMembers(f, o.Version, o.Members); err != nil {
		return "", err
	}
	if err := ioctl(f, runArray, nil); err != nil {
		return "", fmt.Errorf("%s: run: %w", f.Name(), err)
	}
	// The kernel also runs an array from which it has dropped members.
	return f.Name(), Check(sys, f.Name(), o.Level, o.Members)
}

// closeArray closes an array that was opened to start it. If that failed, it stops the array.
func closeArray(f *os.File, failed error) error {
	var err error
	if failed != nil {
		err = block.WhileBusy(context.Background(), func() error { return ioctl(f, stopArray, nil) })
	}
	return errors.Join(err, f.Close())
}

// setMembers makes the kernel read the superblocks of the members of an array that does not run.
func setMembers(f *os.File, version string, members []string) error {
	info := arrayInfo{Major: 1, Minor: map[string]int32{"1.0": 0, "1.1": 1, "1.2": 2}[version]}
	// With only a version, the kernel takes everything else from the superblocks.
	if err := ioctl(f, setArrayInfo, unsafe.Pointer(&info)); err != nil {
		return fmt.Errorf("%s: set version: %w", f.Name(), err)
	}
	for _, member := range members {
		var stat unix.Stat_t
		if err := unix.Stat(member, &stat); err != nil {
			return fmt.Errorf("%s: %w", member, err)
		}
		disk := diskInfo{Major: int32(unix.Major(stat.Rdev)), Minor: int32(unix.Minor(stat.Rdev))}
		if err := ioctl(f, addNewDisk, unsafe.Pointer(&disk)); err != nil {
			return fmt.Errorf("%s: add %s: %w", f.Name(), member, err)
		}
	}
	return nil
}

// Stop stops an array. Its members are free when Stop returns. The error wraps unix.EBUSY while the array is in use.
func Stop(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("stop array: %w", err)
	}
	err = block.WhileBusy(ctx, func() error { return ioctl(f, stopArray, nil) })
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("stop array %s: %w", path, err)
	}
	return nil
}

// open creates an array without members and opens it. A number that is in use is an error.
func open(sys sysfs.Root, number int) (*os.File, error) {
	if number < 0 || number > maxMinor {
		return nil, fmt.Errorf("array number %d is not between 0 and %d", number, maxMinor)
	}
	if err := load(sys); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("md%d", number)
	if err := os.WriteFile(sys.Sys("module/md_mod/parameters/new_array"), []byte(name), 0o200); err != nil {
		return nil, fmt.Errorf("new array %s: %w", name, err)
	}
	// The node is in devtmpfs before the write returns.
	return os.OpenFile("/dev/"+name, os.O_RDWR, 0)
}

// load loads the kernel's module. The kernel loads it when a device with its major number is opened.
func load(sys sysfs.Root) error {
	dir := sys.Sys("module/md_mod")
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary, err := os.MkdirTemp("/dev", "md-")
	if err != nil {
		return fmt.Errorf("load md: %w", err)
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // an unused node
	node := filepath.Join(temporary, "md")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(mdMajor, loadMinor))); err != nil {
		return fmt.Errorf("load md: %w", err)
	}
	f, openErr := os.OpenFile(node, os.O_RDWR, 0)
	if openErr == nil {
		// Opening can create an array, which stopping removes.
		err := ioctl(f, stopArray, nil)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("load md: %w", err)
		}
	}
	if _, err := os.Stat(dir); err != nil { // opening can also fail after the module was loaded
		return fmt.Errorf("load md: the kernel does not support RAID arrays: %w", errors.Join(openErr, err))
	}
	return nil
}

func ioctl(f *os.File, request uintptr, argument unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(argument))
	if errno != 0 {
		return errno
	}
	return nil
}
