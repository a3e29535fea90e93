package vmedia

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// A configuration that exceeds a limit, or that cannot be written, is an error. It is copied completely or not at all.
func TestConfigurationRefused(t *testing.T) {
	t.Parallel()
	const dir = "etc/ironic-python-agent"
	fileCount := func(n int) map[string]string {
		files := map[string]string{}
		for i := range n {
			files[fmt.Sprintf("%s/%03d.conf", dir, i)] = "x"
		}
		return files
	}
	for name, c := range map[string]struct {
		files map[string]string
		root  func(root string) error // prepares the root file system
		err   string                  // "" for none
		count int                     // files that are copied
	}{
		"many files":     {files: fileCount(maxFiles), count: maxFiles},
		"too many files": {files: fileCount(maxFiles + 1), err: dir + " on /dev/sr0 has 257 files, want at most 256"},
		"large file":     {files: map[string]string{dir + "/a": strings.Repeat("x", maxFile)}, count: 1},
		"too large file": {
			files: map[string]string{dir + "/a": strings.Repeat("x", maxFile+1)},
			err:   "a on /dev/sr0 has 1048577 bytes",
		},
		"too large together": {
			files: func() map[string]string {
				files := fileCount(maxCopy / maxFile)
				for name := range files {
					files[name] = strings.Repeat("x", maxFile)
				}
				files[dir+".d/z.conf"] = "x"
				return files
			}(), err: "z.conf on /dev/sr0 has 1 bytes, want at most 0",
		},
		"no directory": {files: map[string]string{dir: "x"}, err: dir + " on /dev/sr0 is not a directory"},
		"a file in place of the directory": {
			files: fileCount(1), err: "not a directory",
			root: func(root string) error { return os.WriteFile(filepath.Join(root, "etc"), nil, 0o600) },
		},
		"a directory in place of the file": {
			files: fileCount(1), err: "directory not empty",
			root: func(root string) error { return os.MkdirAll(filepath.Join(root, dir, "000.conf/x"), 0o700) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.attach("sr0", "pci/ata1/host1", "5", "D", iso(t, "VMEDIA_BOOT_ISO", "", c.files), 32*mib)
				o := m.options(cmdline)
				o.limit, o.drives = readable, unchanging{}
				if err := os.MkdirAll(o.Root, 0o700); err != nil {
					t.Fatal(err)
				}
				if c.root != nil {
					if err := c.root(o.Root); err != nil {
						t.Fatal(err)
					}
				}
				_, err := New(o).Load(t.Context())
				switch {
				case c.err == "" && err != nil:
					t.Error(err)
				case c.err != "" && (!errors.Is(err, ErrMedia) || !strings.Contains(err.Error(), c.err)):
					t.Errorf("got %v, want ErrMedia with %q", err, c.err)
				}
				copied, err := filepath.Glob(filepath.Join(o.Root, "etc/*/*"))
				if err != nil || c.root == nil && len(copied) != c.count {
					t.Errorf("got %d files, %v, want %d", len(copied), err, c.count)
				}
			})
		})
	}
}
