package tree

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// source is a directory with files, a directory within a directory, and a symbolic link if the file system has them.
func source(t *testing.T, symlink bool) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "openstack/latest"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"openstack/latest/meta_data.json": "{}", "b.txt": "second", "a.txt": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if symlink {
		if err := os.Symlink("/etc/shadow", filepath.Join(dir, "openstack/link")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func isoImage(t *testing.T, options ...string) []byte {
	t.Helper()
	testenv.Programs(t, "genisoimage")
	image := filepath.Join(t.TempDir(), "image.iso")
	options = append(options, "-quiet", "-V", "config-2", "-publisher", "me", "-o", image, source(t, true))
	testenv.Run(t, "genisoimage", options...)
	return readFile(t, image)
}

func fatImage(t *testing.T) []byte {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy")
	image, dir := testenv.SparseFile(t, 1<<20), source(t, false)
	testenv.Run(t, "mkfs.vfat", "-n", "CONFIG-2", image)
	for _, name := range []string{"openstack", "b.txt", "a.txt"} {
		testenv.Run(t, "mcopy", "-s", "-i", image, filepath.Join(dir, name), "::/")
	}
	return readFile(t, image)
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// list returns the paths of all nodes with the contents of files.
func list(t *testing.T, directory Node, prefix string, into map[string]string) {
	t.Helper()
	nodes, err := directory.List()
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		if i > 0 && nodes[i-1].Name >= n.Name {
			t.Errorf("%s%s follows %s, want the order of names", prefix, n.Name, nodes[i-1].Name)
		}
		switch {
		case n.List != nil && n.Read != nil:
			t.Errorf("%s%s is both a directory and a file", prefix, n.Name)
		case n.List != nil:
			into[prefix+n.Name] = "directory"
			list(t, n, prefix+n.Name+"/", into)
		case n.Read != nil:
			content, err := n.Read(n.Size)
			if err != nil || int64(len(content)) != n.Size {
				t.Errorf("%s%s: got %d bytes and %v, want %d", prefix, n.Name, len(content), err, n.Size)
			}
			into[prefix+n.Name] = "file " + string(content)
		default:
			into[prefix+n.Name] = "neither"
		}
	}
}

func TestOpen(t *testing.T) {
	files := map[string]string{
		"a.txt": "file ", "b.txt": "file second", "openstack": "directory", "openstack/latest": "directory",
		"openstack/latest/meta_data.json": "file {}",
	}
	withLink := map[string]string{"openstack/link": "neither"}
	for name, content := range files {
		withLink[name] = content
	}
	for name, tt := range map[string]struct {
		image []byte
		want  Tree
		files map[string]string // nil: the names of ECMA-119 are not compared
	}{
		"ISO 9660": {
			isoImage(t, "-r"), Tree{Kind: ISO9660, Label: "config-2", Publisher: "me", LongNames: true}, withLink,
		},
		"ISO 9660 without": {isoImage(t), Tree{Kind: ISO9660, Label: "config-2", Publisher: "me"}, nil},
		"FAT":              {fatImage(t), Tree{Kind: FAT, Label: "CONFIG-2"}, files},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Open(bytes.NewReader(tt.image))
			if err != nil {
				t.Fatal(err)
			}
			root := got.Root
			got.Root = Node{}
			if tt.want.Kind == ISO9660 {
				tt.want.Size = int64(len(tt.image)) // genisoimage counts its padding
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("file system differs (-want +got):\n%s", diff)
			}
			if tt.files == nil {
				return
			}
			found := map[string]string{}
			list(t, root, "", found)
			if diff := cmp.Diff(tt.files, found); diff != "" {
				t.Errorf("files differ (-want +got):\n%s", diff)
			}
		})
	}
}

// A file system that cannot be read is an error that names its kind. Other content is ErrUnknown.
func TestOpenFails(t *testing.T) {
	iso, fat := isoImage(t, "-r"), fatImage(t)
	fat32 := testenv.SparseFile(t, 64<<20)
	testenv.Run(t, "mkfs.vfat", "-F", "32", fat32)
	damaged := bytes.Clone(iso)
	copy(damaged[16*2048+128:], []byte{1, 0}) // logical block size
	for name, tt := range map[string]struct {
		image []byte
		kind  Kind // "": no file system
	}{
		"empty":               {nil, ""},
		"zeros":               {make([]byte, 1<<20), ""},
		"blocks of one byte":  {damaged, ISO9660},
		"truncated ISO 9660":  {iso[:17*2048], ISO9660},
		"FAT without its end": {fat[:1024], FAT},
		"FAT without a label": {readFile(t, fat32)[:512], FAT},
	} {
		_, err := Open(bytes.NewReader(tt.image))
		var broken *DamagedError
		switch {
		case tt.kind == "" && !errors.Is(err, ErrUnknown):
			t.Errorf("%s: got %v, want %v", name, err, ErrUnknown)
		case tt.kind != "" && (!errors.As(err, &broken) || broken.Kind != tt.kind):
			t.Errorf("%s: got %v, want a damaged %s file system", name, err, tt.kind)
		}
	}
}
