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

// rewriteFstab changes the root's fstab so that it mounts the ESP, see [withESP], unless there is no fstab. It reports
// whether the file was changed.
func rewriteFstab(root *mounted.FS, esp string) (changed bool, err error) {
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
	result := withESP(string(text), esp)
	if result == string(text) {
		return false, nil
	}
	// The text before the first change is not rewritten, so that it cannot be lost.
	same := 0
	for same < min(len(text), len(result)) && text[same] == result[same] {
		same++
	}
	if _, err := f.WriteAt([]byte(result[same:]), int64(same)); err != nil {
		return false, err
	}
	if len(result) < len(text) {
		if err := f.Truncate(int64(len(result))); err != nil {
			return false, err
		}
	}
	return true, f.Sync()
}

// espMount is the directory where images mount the ESP, and espLine the rest of its line, as in ironic-python-agent.
const (
	espMount = "/boot/efi"
	espLine  = "\t" + espMount + "\tvfat\tumask=0077\t0\t1"
)

// withESP returns an fstab (fstab(5)) that mounts the ESP, "UUID=1234-ABCD" or "PARTUUID=…". If the fstab mounts
// another file system at /boot/efi, such as the ESP of the machine that built the image, that line is changed: with a
// second line, systemd waits for the device of the first, which does not exist, and ignores the second. The line keeps
// its options if it mounts a FAT file system. Further lines for the directory become comments. Otherwise a line is
// appended, unless one mounts the ESP elsewhere.
func withESP(fstab, esp string) string {
	var result strings.Builder
	elsewhere, seen := false, false
	for line := range strings.Lines(fstab) {
		fields := fstabFields(line)
		elsewhere = elsewhere || fields != nil && isDevice(fields, esp) && mountPoint(fields) != espMount
	}
	for line := range strings.Lines(fstab) {
		fields := fstabFields(line)
		if fields == nil || mountPoint(fields) != espMount {
			result.WriteString(line)
			continue
		}
		switch {
		case seen:
			line = "#" + line
		case isDevice(fields, esp), elsewhere && isBind(fields): // it shows the ESP
		case mountsFAT(fields):
			line = strings.Replace(line, fields[0], esp, 1)
		default:
			line = esp + espLine + line[len(strings.TrimRight(line, "\r\n")):]
		}
		seen = true
		result.WriteString(line)
	}
	if seen || elsewhere {
		return result.String()
	}
	if fstab != "" && !strings.HasSuffix(fstab, "\n") {
		result.WriteString("\n")
	}
	return result.String() + esp + espLine + "\n"
}

// fstabFields returns the fields of a line, at least the device and the directory, nil for a comment and for others.
func fstabFields(line string) []string {
	fields := strings.Fields(line)
	if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
		return nil
	}
	return fields
}

func isDevice(fields []string, device string) bool {
	return strings.EqualFold(strings.ReplaceAll(fields[0], `"`, ""), device)
}

func mountPoint(fields []string) string { return path.Clean(unescape.Replace(fields[1])) }

func isBind(fields []string) bool {
	return len(fields) > 3 && slices.ContainsFunc(strings.Split(fields[3], ","), func(option string) bool {
		return option == "bind" || option == "rbind"
	})
}

// mountsFAT reports whether a line can mount a FAT file system.
func mountsFAT(fields []string) bool {
	return len(fields) > 2 && slices.Contains([]string{"vfat", "auto", "msdos"}, fields[2]) && !isBind(fields)
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
