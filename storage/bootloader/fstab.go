package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"ironroot/storage/mounted"
)

const (
	fstabName = "etc/fstab"
	maxFstab  = 1 << 20 // bytes
)

// addToFstab adds the line that mounts the ESP to the root's fstab, unless it has one or there is no fstab. It reports
// whether the file was changed.
func addToFstab(root *mounted.FS, esp string) (changed bool, err error) {
	f, err := root.OpenFile(fstabName, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFstab {
		return false, fmt.Errorf("%s: got %s of %d bytes, want a file of at most %d",
			f.Name(), info.Mode(), info.Size(), maxFstab)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFstab))
	if err != nil {
		return false, err
	}
	line := fstabLine(string(text), esp)
	if line == "" {
		return false, nil
	}
	// The line is appended: existing lines are not rewritten and cannot be lost.
	if _, err := f.WriteAt([]byte(line), int64(len(text))); err != nil {
		return false, err
	}
	return true, f.Sync()
}

// fstabLine returns the line to append to an fstab so that it mounts the ESP, "" if the fstab already does. esp is
// "UUID=1234-ABCD" or "PARTUUID=…".
func fstabLine(fstab, esp string) string {
	for line := range strings.Lines(fstab) {
		fields := strings.Fields(line)
		if len(fields) > 0 && strings.EqualFold(strings.ReplaceAll(fields[0], `"`, ""), esp) {
			return ""
		}
	}
	line := esp + "\t/boot/efi\tvfat\tumask=0077\t0\t1\n"
	if fstab != "" && !strings.HasSuffix(fstab, "\n") {
		line = "\n" + line
	}
	return line
}

// readFstab returns the fstab of the root file system on a device, "" if it has none.
func readFstab(ctx context.Context, rootPath string) (text string, err error) {
	root, err := mounted.Open(ctx, rootPath, false)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	f, err := root.Regular(fstabName)
	if err != nil {
		return "", absent(err)
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFstab))
	return string(data), err
}

// fstabMount is a line of an fstab (fstab(5)).
type fstabMount struct{ source, at string }

// fatMounts returns the file systems that "mount -a -t vfat" mounts: FAT file systems without the option noauto.
func fatMounts(fstab string) []fstabMount {
	var list []fstabMount
	for line := range strings.Lines(fstab) {
		fields := strings.Fields(line)
		isFAT := len(fields) >= 3 && slices.Contains(strings.Split(fields[2], ","), "vfat")
		if !isFAT || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) > 3 && slices.Contains(strings.Split(fields[3], ","), "noauto") {
			continue
		}
		if at := unescape.Replace(fields[1]); path.IsAbs(at) {
			list = append(list, fstabMount{source: unescape.Replace(fields[0]), at: at})
		}
	}
	return list
}

// unescape decodes the escapes of white space and backslashes in an fstab.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
