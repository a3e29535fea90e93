package boot

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// The fields of proc_pid_stat(5) that say where the environment lies, counted from the one behind the program's name.
const environStart, environEnd = 50 - 3, 51 - 3

// cleanEnvironment leaves nothing in the environment but what programs need. The kernel hands every parameter that it does
// not know itself to init as a variable, the agent token among them, and /proc/1/environ shows the memory where they were
// put then, whatever the process did to its variables since.
func cleanEnvironment() error {
	os.Clearenv()
	failed := wipeEnvironment()
	for key, value := range map[string]string{"PATH": "/bbin:/bin:/sbin", "HOME": "/root", "TERM": "linux"} {
		failed = errors.Join(failed, os.Setenv(key, value))
	}
	return failed
}

// wipeEnvironment overwrites the memory with zeros. Nothing may refer to the variables that were there.
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

// parseEnviron reads the bounds of the environment. The program's name before them may have any bytes in it.
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
