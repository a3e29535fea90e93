package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/storage/sysfs"
)

// diskNodes returns the device nodes of disks and their partitions, as sysfs lists them now.
func diskNodes(s sysfs.Root, disks []string) ([]confine.DeviceNode, error) {
	var nodes []confine.DeviceNode
	for _, disk := range disks {
		resolved, err := filepath.EvalSymlinks(disk)
		if err != nil {
			return nil, err
		}
		name := path.Base(resolved)
		number, err := deviceNumber(s.Sys("class/block", name, "dev"))
		if err != nil {
			return nil, fmt.Errorf("disk %s: %w", disk, err)
		}
		nodes = append(nodes, blockNode(name, number))
		entries, err := os.ReadDir(s.Sys("class/block", name) + "/")
		if err != nil {
			return nil, fmt.Errorf("partitions of %s: %w", disk, err)
		}
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), name) {
				continue
			}
			number, err := deviceNumber(s.Sys("class/block", name, entry.Name(), "dev"))
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				continue // deleted meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("partition %s: %w", entry.Name(), err)
			}
			nodes = append(nodes, blockNode(entry.Name(), number))
		}
	}
	return nodes, nil
}

func blockNode(name string, number uint64) confine.DeviceNode {
	const blockDevice = 0o060000 // S_IFBLK, which other systems than Linux define with another type
	return confine.DeviceNode{Name: name, Mode: blockDevice | 0o600, Number: number}
}

// deviceNumber reads a file with a device number in the form MAJOR:MINOR.
func deviceNumber(file string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	major, minor, found := strings.Cut(strings.TrimSpace(string(text)), ":")
	a, err := strconv.ParseUint(major, 10, 12)
	b, minorErr := strconv.ParseUint(minor, 10, 20)
	if !found || err != nil || minorErr != nil {
		return 0, fmt.Errorf("%s: got %.40q, want MAJOR:MINOR", file, text)
	}
	return unix.Mkdev(uint32(a), uint32(b)), nil
}
