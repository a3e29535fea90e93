//go:build linux

// Command instance is the init of the system that package osimage builds for arm64. It mounts the disk's root file
// system, writes a file to it, and prints the report that the package describes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/uinit/boot"
)

// Offsets on a partition: the identity of ext4 (magic number, label), and the identity of ISO 9660 (volume identifier).
const (
	extMagic  = 0x438
	extLabel  = 0x478
	isoMagic  = 16*2048 + 1
	isoLabel  = 16*2048 + 40
	readBytes = 17 * 2048
)

func main() { boot.Main(report) }

func report(ctx context.Context, m *boot.Machine) error {
	<-m.Settled
	var root string
	err := block.Await(ctx, func() (bool, error) {
		root = partition(func(head []byte) bool {
			return string(head[extMagic:extMagic+2]) == "\x53\xef" && text(head[extLabel:][:16]) == "cloudroot"
		})
		return root != "", nil
	})
	if err != nil {
		return fmt.Errorf("find the root file system: %w", err)
	}
	name, err := start(root)
	if err != nil {
		return fmt.Errorf("root file system on %s: %w", root, err)
	}
	fmt.Printf("INSTANCE-UP %s\n", name)
	drive := partition(func(head []byte) bool {
		return string(head[isoMagic:isoMagic+5]) == "CD001" && text(head[isoLabel:][:32]) == "config-2"
	})
	if drive == "" {
		fmt.Println("CONFIG-DRIVE missing")
	} else {
		uuid, err := instanceID(drive)
		if err != nil {
			return fmt.Errorf("config drive on %s: %w", drive, err)
		}
		fmt.Printf("CONFIG-DRIVE %s %s\n", uuid, drive)
	}
	fmt.Println("INSTANCE-READY")
	return nil
}

func text(field []byte) string { return strings.TrimRight(string(field), "\x00 ") }

// partition returns the path of the first partition that matches, "" if there is none.
func partition(matches func(head []byte) bool) string {
	numbers, err := filepath.Glob("/sys/class/block/*/partition")
	if err != nil {
		return "" // the pattern is a constant
	}
	for _, number := range numbers {
		path := "/dev/" + filepath.Base(filepath.Dir(number))
		head := make([]byte, readBytes)
		f, err := os.Open(path)
		if err != nil {
			continue // its node does not exist yet
		}
		n, _ := f.ReadAt(head, 0) // a smaller partition is none of these
		_ = f.Close()             // only read
		if n == len(head) && matches(head) {
			return path
		}
	}
	return ""
}

// mounted calls f with the directory at which a partition is mounted.
func mounted(path, kind string, flags uintptr, f func(dir string) error) error {
	dir, err := os.MkdirTemp("/", "mount-")
	if err != nil {
		return err
	}
	if err := unix.Mount(path, dir, kind, flags, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := f(dir); err != nil {
		return err
	}
	return unix.Unmount(dir, 0)
}

// start writes to the root file system and returns the host name.
func start(root string) (name string, err error) {
	err = mounted(root, "ext4", 0, func(dir string) error {
		content, err := os.ReadFile(filepath.Join(dir, "etc/hostname"))
		if err != nil {
			return err
		}
		name = strings.TrimSpace(string(content))
		return os.WriteFile(filepath.Join(dir, "started"), []byte(name), 0o600)
	})
	return name, err
}

// instanceID returns the UUID of a config drive.
func instanceID(drive string) (uuid string, err error) {
	err = mounted(drive, "iso9660", unix.MS_RDONLY, func(dir string) error {
		content, err := os.ReadFile(filepath.Join(dir, "openstack/latest/meta_data.json"))
		if err != nil {
			return err
		}
		var data struct{ UUID string }
		err = json.Unmarshal(content, &data)
		uuid = data.UUID
		return err
	})
	return uuid, err
}
