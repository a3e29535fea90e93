package sysfs

import (
	"fmt"
	"strconv"
	"strings"
)

// AvailableMemory returns the number of bytes that programs can use without swapping (MemAvailable).
func (r Root) AvailableMemory() (int64, error) {
	text, err := r.Files.Read(r.Proc("meminfo"))
	if err != nil {
		return 0, err
	}
	return ParseMeminfo(text, "MemAvailable")
}

// ParseMeminfo returns a value of /proc/meminfo in bytes, for example MemTotal. The file's unit kB is 1024 bytes
// (proc_meminfo(5)).
func ParseMeminfo(meminfo []byte, name string) (int64, error) {
	for line := range strings.SplitSeq(string(meminfo), "\n") {
		rest, found := strings.CutPrefix(line, name+":")
		if !found {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse %s of meminfo: %w", name, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("parse meminfo: %s missing", name)
}
