package bootloader

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// ErrArray is returned for a Linux RAID array that firmware cannot boot from.
var ErrArray = errors.New("firmware cannot read this RAID array")

// CheckArray returns an error that wraps ErrArray for a Linux RAID array (md(4)) that firmware does not see as a disk.
// Boot entries for its content and a boot sector on it would have no effect, see [ArrayDisks]. It returns nil for
// all other disks, for arrays in the firmware's own format, and for mirrors of whole disks without a superblock or with
// one at the end, whose members look like the array.
func CheckArray(sys sysfs.Root, disk block.Device) error {
	text, err := sys.Files.Read(sys.Sys("class/block", disk.Name, "md/metadata_version"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	format := strings.TrimSpace(string(text))
	if strings.HasPrefix(format, "external:") {
		return nil
	}
	members, err := block.Components(sys, disk.Path)
	if err != nil {
		return err
	}
	parts := slices.ContainsFunc(members, func(member string) bool {
		d, err := block.Find(sys, member)
		return err != nil || d.Type != "disk"
	})
	if disk.Type == "raid1" && slices.Contains([]string{"none", "0.90", "1.0"}, format) && !parts {
		return nil
	}
	return fmt.Errorf("%s is a %s array with metadata %s of %s: %w",
		disk.Path, disk.Type, format, strings.Join(members, ", "), ErrArray)
}
