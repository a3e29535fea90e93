//go:build linux

package ironic

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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
		id, parent, used, err := parseStat(string(data))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		parents[id], times[id] = parent, used
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

// parseStat reads the identifier of a process, that of its parent, and the processor time that it has used, from
// /proc/PID/stat (proc_pid_stat(5)).
func parseStat(text string) (id, parent int, used time.Duration, err error) {
	name := strings.LastIndexByte(text, ')') // the name can contain spaces and parentheses
	fields := strings.Fields(text[name+1:])
	if name < 0 || len(fields) < 13 {
		return 0, 0, 0, fmt.Errorf("unexpected form: %q", text)
	}
	first, _, _ := strings.Cut(text, " ")
	var values [4]int64
	for i, field := range []string{first, fields[1], fields[11], fields[12]} { // pid, ppid, utime, stime
		if values[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return 0, 0, 0, fmt.Errorf("%q: %w", text, err)
		}
	}
	return int(values[0]), int(values[1]), time.Duration(values[2]+values[3]) * clockTick, nil
}
