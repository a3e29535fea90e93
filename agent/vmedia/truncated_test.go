package vmedia

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/nfit"
	"ironroot/storage/nfit/nfittest"
)

// A truncated boot ISO gives its whole configuration or none, wherever it ends. A RAM disk to which the firmware has
// loaded less than the volume is an error that says so, even if the configuration is complete. A drive can report too
// few bytes for a complete disc: only what is read must be there.
func TestTruncatedBootISO(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"etc/ironic-python-agent.d/a.conf": "[DEFAULT]\napi_url = http://iso\n",
		"etc/ironic-python-agent.d/b.conf": "[DEFAULT]\n# " + strings.Repeat("middle", 2000) + "\n",
		"z/vmlinuz":                        strings.Repeat("kernel", 20_000),
	}
	// The records of these files take more than one sector of the directory.
	for n := range 30 {
		files[fmt.Sprintf("etc/ironic-python-agent.d/%02d-%s.crt", n, longName)] = fmt.Sprint("certificate ", n)
	}
	config := map[string]string{}
	for name, content := range files {
		if strings.HasPrefix(name, "etc/") {
			config[name] = content
		}
	}
	image, err := os.ReadFile(iso(t, "VMEDIA_BOOT_ISO", "", files))
	if err != nil {
		t.Fatal(err)
	}
	const sector = 2048
	// after returns the end of the sector in which a text begins.
	after := func(text string) int {
		t.Helper()
		at := bytes.Index(image, []byte(text))
		if at < 0 || bytes.Contains(image[at+1:], []byte(text)) && text != "middle" && text != "kernel" {
			t.Fatalf("%q is not at one place of the image", text)
		}
		return at/sector*sector + sector
	}
	const header = 40 << 10  // volume descriptors without a directory
	last := after("B.CON;1") // in the last sector of the directory
	for name, c := range map[string]struct {
		size  int
		drive string // the error; "" for the whole configuration
	}{
		"before the root directory": {header, "/dev/sr0: ISO 9660 file /: got 0 bytes, want 2048"},
		"in the directory":          {last - sector, "ISO 9660 file ironic-python-agent.d: got 4096 bytes, want 6144"},
		"before all files":          {last, "ISO 9660 file "},
		"in the middle of a file":   {after("middle"), "d/b.conf on /dev/sr0: ISO 9660 file b.conf: "},
		"after the configuration":   {after("kernel"), ""},
		"not":                       {len(image), ""},
	} {
		for device, attach := range map[string]func(*machine, string){
			"/dev/sr0": func(m *machine, path string) {
				m.attach("sr0", "pci/ata1/host1", "5", "DVD", path, int64(c.size))
			},
			"/dev/pmem1": func(m *machine, path string) {
				nfittest.Machine(t, m.root,
					nfit.Range{Index: 1, Type: nfit.VirtualCD, Base: 4 << 30, Size: uint64(c.size)})
				m.link(path, filepath.Join(m.root, "dev/pmem1"))
			},
		} {
			t.Run(name+strings.ReplaceAll(device, "/", " "), func(t *testing.T) {
				m := newMachine(t)
				path := filepath.Join(t.TempDir(), "image.iso")
				write(t, path, string(image[:c.size]))
				attach(m, path)
				o := m.options(cmdline)
				_, err := New(o).Load(limited(t))
				want := c.drive
				if device == "/dev/pmem1" && c.size < len(image) {
					want = fmt.Sprintf("/dev/pmem1: ISO 9660 volume of %d bytes is truncated: the RAM disk has %d",
						len(image), c.size)
					if c.size == header {
						want = "/dev/pmem1: ISO 9660 file /: got 0 bytes, want 2048"
					}
				}
				if errors.Is(err, ErrMedia) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want %q", err, want)
				}
				copied := map[string]string{}
				if want == "" {
					copied = config
				}
				if diff := cmp.Diff(copied, filesBelow(t, o.Root)); diff != "" {
					t.Errorf("configuration (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// filesBelow returns the files of a directory, which may not exist, with their content.
func filesBelow(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, root+"/")] = string(content)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}
