//go:build linux

package ironic

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ironroot/storage/sysfs"
)

// Address is the address of Ironic in the network of its machines.
const Address = address

// Call sends a request to Ironic's API with the newest API version. body and result may be nil.
func (i *Ironic) Call(ctx context.Context, method, path string, body, result any) error {
	return i.call(ctx, method, path, body, result)
}

// Listen listens on a port of Address for machines and Ironic.
func (i *Ironic) Listen(ctx context.Context, port int) (net.Listener, error) {
	return i.ns.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
}

// clockTick is the unit of processor times in procfs: USER_HZ, which is 100 on all architectures of Linux that Ironic
// is used on.
const clockTick = time.Second / 100

// ProcessorTime returns the processor time that Ironic's processes, API and conductor together, have used so far.
func (i *Ironic) ProcessorTime() (time.Duration, error) {
	parents, times := map[int]int{}, map[int]time.Duration{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		process, err := sysfs.ParseProcess(data)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		parents[process.PID] = process.Parent
		times[process.PID] = time.Duration(process.UserTime+process.SystemTime) * clockTick
	}
	root := i.process.cmd.Process.Pid
	if _, runs := times[root]; !runs {
		return 0, fmt.Errorf("process %d of Ironic does not run", root)
	}
	var sum time.Duration
	for id, used := range times {
		for at := id; at != 0; at = parents[at] {
			if at == root {
				sum += used
				break
			}
		}
	}
	return sum, nil
}
