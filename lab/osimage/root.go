package osimage

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Root makes a partition image in dir and returns its path: the root file system alone, raw, with the loaders that the
// disk has on its EFI system partition below /boot/efi/EFI, where an installer of boot loaders looks for them. It needs
// debugfs, which is part of e2fsprogs.
func (i *Image) Root(ctx context.Context, dir string) (string, error) {
	image, loaders := filepath.Join(dir, "root.ext4"), filepath.Join(dir, "loaders")
	const start = 2*mib + espSize
	if err := run(ctx, nil, "dd", "if="+i.Raw, "of="+image, "bs=1M", "conv=sparse", "status=none",
		fmt.Sprintf("skip=%d", start/mib), fmt.Sprintf("count=%d", (i.Size-mib-start)/mib)); err != nil {
		return "", err
	}
	if err := os.MkdirAll(loaders, 0o755); err != nil {
		return "", err
	}
	if err := run(ctx, nil, "mcopy", "-s", "-n", "-i", fmt.Sprintf("%s@@%d", i.Raw, 2*mib), "::EFI", loaders); err != nil {
		return "", err
	}
	script := []string{"mkdir boot/efi"}
	err := filepath.WalkDir(loaders, func(path string, entry fs.DirEntry, err error) error {
		switch name := "boot/efi" + strings.TrimPrefix(path, loaders); {
		case err != nil:
			return err
		case path == loaders:
		case entry.IsDir():
			script = append(script, "mkdir "+name)
		default:
			script = append(script, fmt.Sprintf("write %s %s", path, name))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	commands := filepath.Join(dir, "commands")
	if err := os.WriteFile(commands, []byte(strings.Join(script, "\n")+"\n"), 0o600); err != nil {
		return "", err
	}
	if err := run(ctx, nil, "debugfs", "-w", "-f", commands, image); err != nil {
		return "", err
	}
	// debugfs succeeds whatever becomes of its commands.
	for _, line := range script {
		if path, isFile := strings.CutPrefix(line, "write "); isFile {
			path, name, _ := strings.Cut(path, " ")
			if err := compare(ctx, image, path, name); err != nil {
				return "", err
			}
		}
	}
	return image, nil
}

// compare fails unless the file system holds a file that is like the one at path.
func compare(ctx context.Context, image, path, name string) error {
	back := path + ".back"
	if err := run(ctx, nil, "debugfs", "-R", "dump "+name+" "+back, image); err != nil {
		return err
	}
	want, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("write %s to %s: got %d bytes and %v, want %d", name, image, len(got), err, len(want))
	}
	return nil
}
