package bootloader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/block"
	"ironroot/storage/fat"
	"ironroot/storage/sysfs"
)

// Whether firmware can read an array depends on the position of its superblock, its level, and its members.
func TestCheckArray(t *testing.T) {
	for _, tt := range []struct {
		level, format string
		members       []string
		refused       bool
	}{
		{"", "", nil, false}, // a disk
		{"raid1", "1.2", []string{"sda", "sdb"}, true},
		{"raid1", "1.1", []string{"sda", "sdb"}, true},
		{"raid1", "1.0", []string{"sda", "sdb"}, false},
		{"raid1", "0.90", []string{"sda", "sdb"}, false},
		{"raid1", "1.0", []string{"sda1", "sdb1"}, true},
		{"raid1", "1.0", []string{"sda", "sdc"}, true}, // sdc is not known
		{"raid0", "1.0", []string{"sda", "sdb"}, true},
		{"raid1", "none", []string{"sda", "sdb"}, false},
		{"raid0", "external:/md127/0", []string{"sda", "sdb"}, false},
	} {
		t.Run(fmt.Sprint(tt.level, tt.format, tt.members), func(t *testing.T) {
			sys := sysfs.Root{Path: t.TempDir()}
			for name, content := range map[string]string{
				"devices/sda/size": "1\n", "devices/sda/sda1/size": "1\n", "devices/sda/sda1/partition": "1\n",
				"devices/sdb/size": "1\n", "devices/sdb/sdb1/size": "1\n", "devices/sdb/sdb1/partition": "1\n",
			} {
				write(t, sys.Sys(), name, content)
			}
			write(t, sys.Sys("class/block"), "md5/size", "1\n")
			for name, real := range map[string]string{
				"sda": "sda", "sda1": "sda/sda1", "sdb": "sdb", "sdb1": "sdb/sdb1",
			} {
				if err := os.Symlink(sys.Sys("devices", real), sys.Sys("class/block", name)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.level != "" {
				write(t, sys.Sys("class/block/md5"), "md/level", tt.level+"\n")
				write(t, sys.Sys("class/block/md5"), "md/metadata_version", tt.format+"\n")
			}
			for _, member := range tt.members {
				// A link in the kernel's sysfs; only its name matters.
				write(t, sys.Sys("class/block/md5"), filepath.Join("slaves", member), "")
			}
			device, err := block.Find(sys, "md5")
			if err != nil {
				t.Fatal(err)
			}
			err = CheckArray(sys, device)
			if errors.Is(err, ErrArray) != tt.refused || !tt.refused && err != nil {
				t.Fatalf("got %v, want it refused: %t", err, tt.refused)
			}
			if tt.refused && !strings.Contains(err.Error(), "/dev/md5") {
				t.Errorf("got %v, want it to name the array", err)
			}
		})
	}
}

// Two names that only Unicode's case folding makes equal are two files, each with its own content.
func TestContentOfFoldedNames(t *testing.T) {
	want := map[string]string{"k": "first", "\u212a": "other", "EFI/k": "third", "EFI/\u212a": "fifth"} // Kelvin sign
	node := func(path string) fat.Node {
		content := []byte(want[path])
		return fat.Node{
			Name: filepath.Base(path), Size: int64(len(content)),
			Content: fat.Bytes(content),
		}
	}
	image, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	v := fat.Volume{Size: 1 << 20, Sector: 512}
	nodes := []fat.Node{
		node("k"), node("\u212a"),
		{Name: "EFI", IsDir: true, Nodes: []fat.Node{node("EFI/k"), node("EFI/\u212a")}},
	}
	if err := errors.Join(image.Truncate(v.Size), v.Write(t.Context(), image, nodes, nil)); err != nil {
		t.Fatal(err)
	}
	tree, err := fat.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	c, err := readContent(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	var collect func(dir string, nodes []fat.Node)
	collect = func(dir string, nodes []fat.Node) {
		for _, n := range nodes {
			if n.IsDir {
				collect(n.Name, n.Nodes)
				continue
			}
			var content bytes.Buffer
			if err := n.Content.Copy(t.Context(), &content); err != nil {
				t.Error(err)
			}
			got[filepath.Join(dir, n.Name)] = content.String()
		}
	}
	collect("", c.nodes)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
