//go:build linux

package boot

import (
	"crypto/fips140"
	"errors"
	"fmt"
	"os"

	"ironroot/storage/sysfs"
)

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
	process, err := sysfs.ParseProcess(stat)
	if err != nil {
		return err
	}
	const most = 6 << 20 // bytes of arguments and environment together: execve(2)
	start, end := process.EnvironStart, process.EnvironEnd
	if start <= 0 || end < start || end-start > most {
		return fmt.Errorf("environment from address %d to %d", start, end)
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(make([]byte, end-start), start)
	return errors.Join(err, memory.Close())
}
