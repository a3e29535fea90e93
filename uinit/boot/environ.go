//go:build linux

package boot

import (
	"bytes"
	"crypto/fips140"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// The indices of the fields env_start and env_end of proc_pid_stat(5), counted from the field after the program's name.
const environStart, environEnd = 50 - 3, 51 - 3

// cleanEnvironment removes all variables that programs do not need. The kernel passes each parameter that it does not
// know to init as a variable, the agent token included. /proc/1/environ shows the memory that contained them at the
// start, even after the process has changed its variables.
func cleanEnvironment() error {
	variables := map[string]string{"PATH": "/bbin:/bin:/sbin", "HOME": "/root", "TERM": "linux"}
	if fips140.Enabled() {
		variables[godebug] = fipsOn // for the program's own child processes
	}
	os.Clearenv()
	failed := wipeEnvironment()
	for key, value := range variables {
		failed = errors.Join(failed, os.Setenv(key, value))
	}
	return failed
}

// wipeEnvironment overwrites that memory with zeros. No string may refer to it.
func wipeEnvironment() error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	start, end, err := parseEnviron(stat)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(make([]byte, end-start), start)
	return errors.Join(err, memory.Close())
}

// parseEnviron parses the bounds of the environment. The program's name before them can contain any bytes.
func parseEnviron(stat []byte) (start, end int64, err error) {
	const most = 6 << 20 // bytes of arguments and environment together: execve(2)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= environEnd {
		return 0, 0, fmt.Errorf("process status of %d fields, want more than %d", len(fields), environEnd)
	}
	for field, into := range map[int]*int64{environStart: &start, environEnd: &end} {
		if *into, err = strconv.ParseInt(string(fields[field]), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("process status: %w", err)
		}
	}
	if start <= 0 || end < start || end-start > most {
		return 0, 0, fmt.Errorf("environment from %d to %d", start, end)
	}
	return start, end, nil
}
