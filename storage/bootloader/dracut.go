package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	grubDefaults = "etc/default/grub"
	maxDefaults  = 1 << 20 // bytes
)

// addArrayParameter adds the kernel parameter of an array to the settings of GRUB's menu, if the root has dracut, which
// otherwise does not assemble the array (dracut.cmdline(7), rd.md.uuid). It reports whether the file was changed. A
// root without dracut or without the settings is not changed.
func addArrayParameter(ctx context.Context, rootPath, uuid string) (changed bool, err error) {
	root, err := openWritable(ctx, rootPath)
	if root == nil || err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	found := false
	for _, name := range []string{"usr/bin/dracut", "usr/sbin/dracut", "bin/dracut", "sbin/dracut"} {
		if f, err := root.Regular(name); err == nil {
			found = true
			_ = f.Close() // only opened
		}
	}
	if !found {
		return false, nil
	}
	f, err := root.OpenFile(grubDefaults, os.O_RDWR, 0)
	if err != nil {
		return false, absent(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxDefaults {
		return false, fmt.Errorf("%s: got %s of %d bytes, want a file of at most %d",
			f.Name(), info.Mode(), info.Size(), maxDefaults)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDefaults))
	if err != nil {
		return false, err
	}
	line := arrayParameter(string(text), uuid)
	if line == "" {
		return false, nil
	}
	// The file is a shell script, so that a line at its end can extend a variable.
	if _, err := f.WriteAt([]byte(line), int64(len(text))); err != nil {
		return false, err
	}
	return true, f.Sync()
}

// arrayParameter returns the lines to append to GRUB's settings, "" if these have the parameter. The UUID is written as
// by mdadm.
func arrayParameter(settings, uuid string) string {
	digits := strings.ReplaceAll(uuid, "-", "")
	var words []string
	for ; len(digits) > 8; digits = digits[8:] {
		words = append(words, digits[:8])
	}
	parameter := "rd.md.uuid=" + strings.Join(append(words, digits), ":")
	if strings.Contains(settings, parameter) {
		return ""
	}
	line := `GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ` + parameter + "\"\n"
	if settings != "" && !strings.HasSuffix(settings, "\n") {
		line = "\n" + line
	}
	return line
}
