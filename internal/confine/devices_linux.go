package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// standardNodes are the nodes that programs expect.
var standardNodes = []DeviceNode{
	{"null", unix.S_IFCHR | 0o666, unix.Mkdev(1, 3)},
	{"zero", unix.S_IFCHR | 0o666, unix.Mkdev(1, 5)},
	{"full", unix.S_IFCHR | 0o666, unix.Mkdev(1, 7)},
	{"random", unix.S_IFCHR | 0o666, unix.Mkdev(1, 8)},
	{"urandom", unix.S_IFCHR | 0o666, unix.Mkdev(1, 9)},
	{"tty", unix.S_IFCHR | 0o666, unix.Mkdev(5, 0)},
}

// FillDev makes six standard device nodes and the given ones in /dev, which was mounted for the program, and the links
// to the program's open files. A node can be named twice.
func FillDev(nodes []DeviceNode) error {
	for _, list := range [][]DeviceNode{standardNodes, nodes} {
		for _, n := range list {
			if err := n.make(); err != nil {
				return err
			}
		}
	}
	for name, target := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+target, "/dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

func (n DeviceNode) make() error {
	name := path.Join("/dev", n.Name)
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(name, n.Mode, int(n.Number)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make device node %s: %w", name, err)
	}
	return os.Chmod(name, fs.FileMode(n.Mode&0o777)) // regardless of the umask
}
