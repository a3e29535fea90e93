//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ironroot/agent/hardware/external"
	"ironroot/uinit/boot/layout"
)

const (
	// userlandDir is the directory in which the userland of a rescue is assembled, and userland its root directory.
	userlandDir = "/rescue"
	userland    = userlandDir + "/root"
	// sudoFile is the path of sudo in a userland.
	sudoFile = "usr/bin/sudo"
)

// mountUserland mounts the userland of a rescue, and returns its root directory, "" if the image has none. The userland
// is writable: an overlay in memory receives the changes.
func mountUserland(ctx context.Context) (string, error) {
	image := "/" + layout.RescueFile
	if _, err := os.Stat(image); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if _, err := os.Stat(userland + "/proc/self"); err == nil {
		return userland, nil // the work is run again
	}
	if err := os.MkdirAll(userlandDir, 0o755); err != nil {
		return "", err
	}
	if err := unix.Mount("tmpfs", userlandDir, "tmpfs", 0, "mode=755"); err != nil {
		return "", fmt.Errorf("mount %s: %w", userlandDir, err)
	}
	below := func(name string) string { return filepath.Join(userlandDir, name) }
	for _, name := range []string{"image", "changes", "work", "root"} {
		if err := os.Mkdir(below(name), 0o755); err != nil {
			return "", err
		}
	}
	if err := external.MountImage(ctx, image, below("image")); err != nil {
		return "", fmt.Errorf("mount %s: %w", image, err)
	}
	options := "lowerdir=" + below("image") + ",upperdir=" + below("changes") + ",workdir=" + below("work")
	if err := unix.Mount("overlay", userland, "overlay", 0, options); err != nil {
		return "", fmt.Errorf("mount overlay over %s: %w", image, err)
	}
	if err := os.MkdirAll(filepath.Join(userland, "etc"), 0o755); err != nil { // for name servers and users
		return "", err
	}
	for _, dir := range []string{"dev", "proc", "sys", "run", "tmp"} { // with what hides secrets
		if err := unix.Mount("/"+dir, filepath.Join(userland, dir), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return "", fmt.Errorf("mount /%s into %s: %w", dir, image, err)
		}
	}
	return userland, nil
}

// checkUserland returns an error unless the image below root has a userland of a rescue that contains a shell. It
// mounts the userland for that time.
func checkUserland(ctx context.Context, root string) (err error) {
	image := filepath.Join(root, layout.RescueFile)
	if _, err := os.Stat(image); errors.Is(err, fs.ErrNotExist) {
		return errors.New("the image has no userland of a rescue")
	}
	dir, err := os.MkdirTemp("", "rescue-")
	if err != nil {
		return err
	}
	defer os.Remove(dir) //nolint:errcheck // an empty directory in memory
	if err := external.MountImage(ctx, image, dir); err != nil {
		return fmt.Errorf("mount %s: %w", image, err)
	}
	_, err = findShell(dir)
	if err != nil {
		err = fmt.Errorf("userland %s: %w", image, err)
	}
	return errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
}

// installSudo makes this program available below a root directory under the name sudo.
func installSudo(root string) error {
	const program, mode = "/init", 0o755
	if root == "/" {
		if err := os.Symlink(program, "/bin/sudo"); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only a position
	if err := dir.MkdirAll(path.Dir(sudoFile), mode); err != nil {
		return err
	}
	if err := dir.Remove(sudoFile); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	f, err := dir.OpenFile(sudoFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil // it is mounted there
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := unix.Mount(program, filepath.Join(root, sudoFile), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount sudo: %w", err)
	}
	return nil
}
