package sysfs

import (
	"bytes"
	"fmt"
	"strconv"
)

// Process holds fields of /proc/PID/stat.
type Process struct {
	PID, Parent int
	State       byte  // a letter, for example 'Z' for a zombie
	Flags       int64 // the kernel's PF_ flags
	// UserTime and SystemTime are the processor times that the process has used so far, in clock ticks: USER_HZ, which
	// is 100 a second on all architectures of the ramdisk.
	UserTime, SystemTime int64
	// EnvironStart and EnvironEnd are the addresses of the environment that the process was started with, 0 if the
	// reader may not know them.
	EnvironStart, EnvironEnd int64
}

// Fields of /proc/PID/stat, numbered as in proc_pid_stat(5).
const (
	stateField        = 3 // the first after the program's name
	parentField       = 4
	flagsField        = 9
	userTimeField     = 14
	systemTimeField   = 15
	environStartField = 50
	environEndField   = 51
)

// ParseProcess parses /proc/PID/stat (proc_pid_stat(5)). The program's name, which is in parentheses, can contain any
// bytes.
func ParseProcess(stat []byte) (Process, error) {
	pid, _, _ := bytes.Cut(stat, []byte(" ("))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if got, want := len(fields)+stateField-1, environEndField; got < want {
		return Process{}, fmt.Errorf("parse stat of process: got %d fields, want at least %d", got, want)
	}
	field := func(number int) string { return string(fields[number-stateField]) }
	p := Process{State: field(stateField)[0]}
	var err error
	number := func(text string) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(text, 10, 64)
		}
		return n
	}
	p.PID, p.Parent, p.Flags = int(number(string(pid))), int(number(field(parentField))), number(field(flagsField))
	p.UserTime, p.SystemTime = number(field(userTimeField)), number(field(systemTimeField))
	p.EnvironStart, p.EnvironEnd = number(field(environStartField)), number(field(environEndField))
	if err != nil {
		return Process{}, fmt.Errorf("parse stat of process: %w", err)
	}
	if p.PID < 1 { // kill(2) would take it for several processes
		return Process{}, fmt.Errorf("parse stat of process: got number %d, want at least 1", p.PID)
	}
	return p, nil
}
