package burnin

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openDisk opens a disk to read it past the page cache.
func openDisk(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0) }

// online returns the numbers of the processors that this process may run on: in a ramdisk all that are online.
func online() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var numbers []int
	for i := range 8 * int(unsafe.Sizeof(set)) {
		if set.IsSet(i) {
			numbers = append(numbers, i)
		}
	}
	if len(numbers) == 0 {
		return nil, errors.New("none is online")
	}
	return numbers, nil
}

// pin makes the calling goroutine run on one processor until it calls release.
func pin(processor int) (release func(), err error) {
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("get affinity: %w", err)
	}
	one.Set(processor)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("set affinity: %w", err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
		}
	}, nil
}
