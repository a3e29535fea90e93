//go:build linux

package boot

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/internal/confine"
	"ironroot/storage/efivarfs"
	"ironroot/uinit/boot/layout"
)

// variablesDir is the directory of the firmware's variables below the root directory.
const variablesDir = "sys/firmware/efi/efivars"

// protection describes how the machine is protected against parameters from outside its image.
type protection struct {
	unified bool   // the ramdisk is part of a unified kernel image
	signed  bool   // the firmware has verified the image, or its state is unknown
	cmdline string // of the image
	err     error  // the state of Secure Boot is unknown
}

// readProtection reads the command line that a unified kernel image contains, and the state of Secure Boot
// below root. If the state cannot be read, the image counts as signed.
func readProtection(root string) protection {
	line, err := os.ReadFile(filepath.Join(root, layout.SignedCmdline))
	if errors.Is(err, fs.ErrNotExist) {
		return protection{}
	}
	if err != nil {
		return protection{unified: true, signed: true, err: err}
	}
	p := protection{unified: true, cmdline: string(line)}
	if root == "/" {
		p.err = mountVariables()
	}
	enabled, err := secureBoot(filepath.Join(root, variablesDir))
	if err != nil {
		p.signed, p.err = true, errors.Join(p.err, err)
		return p
	}
	p.signed, p.err = enabled, nil
	return p
}

// mountVariables mounts efivarfs, which other machines get later: see mountLate.
func mountVariables() error {
	err := unix.Mount("efivarfs", "/"+variablesDir, "efivarfs", confine.DataOnly, "")
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return &os.PathError{Op: "mount", Path: "efivarfs", Err: err}
	}
	return nil
}

// secureBoot reports whether Secure Boot is enabled. Firmware without its variable has no Secure Boot, if the directory
// shows other variables.
func secureBoot(dir string) (bool, error) {
	enabled, err := efivarfs.SecureBoot(dir, os.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		others, listErr := os.ReadDir(dir)
		if listErr == nil && len(others) > 0 {
			return false, nil
		}
	}
	return enabled, err
}

// report logs the state. used is the command line that the kernel got. Of the parameters that are not in the image, it
// logs the names that the ramdisk knows: others can be parts of values.
func (p protection) report(log *slog.Logger, used string) {
	if !p.unified {
		return
	}
	if p.err != nil {
		log.Error("state of Secure Boot unknown, treated as enabled", "err", p.err)
	}
	if !p.signed {
		log.Warn("unified kernel image started without Secure Boot: its command line is not protected")
		return
	}
	log.Info("unified kernel image with Secure Boot: only its own command line is used")
	extra, ok := strings.CutPrefix(strings.TrimSpace(used), strings.TrimSpace(p.cmdline))
	if extra = strings.TrimSpace(extra); ok && (extra == "" || extra == "--") {
		return
	}
	log.Warn("kernel parameters ignored that the signed image does not contain", "source", "firmware",
		"known", strings.Join(config.ParseCmdline(extra).KnownNames(), " "))
}
