package fat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/testenv"
)

func file(name, content string) Node {
	return Node{Name: name, Size: int64(len(content)), Content: func() ([]byte, error) { return []byte(content), nil }}
}

func folder(name string, nodes ...Node) Node { return Node{Name: name, Folder: true, Nodes: nodes} }

// tree returns difficult files: nested directories, one of many clusters, names with dots, spaces and characters
// outside ASCII, and of 255 units.
func tree() ([]Node, map[string]string) {
	want := map[string]string{
		"openstack/latest/meta_data.json": `{"uuid": "1"}`, "openstack/latest/user_data": strings.Repeat("0123456789abcdef", 3000),
		"openstack/content/0000": "", "a.long.name with spaces.tar.gz": "x", "größe 😀.txt": "y", ".hidden": "z",
		strings.Repeat("n", 255): "long", "UPPER.TXT": "upper",
	}
	many := folder("many")
	for i := range 500 {
		name := fmt.Sprintf("file with number %04d", i)
		many.Nodes = append(many.Nodes, file(name, name))
		want["openstack/many/"+name] = name
	}
	get := func(name string) Node { return file(filepath.Base(name), want[name]) }
	return []Node{
		folder("openstack", folder("latest", get("openstack/latest/meta_data.json"), get("openstack/latest/user_data")),
			folder("content", get("openstack/content/0000")), many, folder("empty")),
		get("a.long.name with spaces.tar.gz"), get("größe 😀.txt"), get(".hidden"), get(strings.Repeat("n", 255)), get("UPPER.TXT"),
	}, want
}

func write(t *testing.T, v Volume, nodes []Node) (*os.File, error) {
	t.Helper()
	f, err := os.OpenFile(testenv.SparseFile(t, v.Size), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, v.Write(context.Background(), f, nodes, f.Sync)
}

func TestWrite(t *testing.T) {
	testenv.Programs(t, "fsck.vfat", "mcopy", "blkid")
	nodes, want := tree()
	for _, c := range []struct{ size, sector, bits int64 }{
		{2 * mib, 512, 12},
		{8<<20 + 512, 512, 12},
		{9 * mib, 512, 16},
		{64 * mib, 512, 16},
		{200 * mib, 512, 16},
		{512<<20 - 512, 512, 16},
		{512 << 20, 512, 32},
		{3 << 30, 512, 32},
		{40<<30 + 512, 512, 32},
		{8 * mib, 4096, 12},
		{64 * mib, 4096, 16},
		{550 << 20, 4096, 32},
		{64 * mib, 2048, 16},
		{20 << 30, 4096, 32},
	} {
		t.Run(fmt.Sprintf("%d bytes in sectors of %d", c.size, c.sector), func(t *testing.T) {
			f, err := write(t, Volume{Size: c.size, Sector: c.sector, Label: "CONFIG-2", Serial: 0x1234abcd}, nodes)
			if err != nil {
				t.Fatal(err)
			}
			// fsck.vfat finds nothing to repair.
			testenv.Run(t, "fsck.vfat", "-n", f.Name())
			if out := testenv.Run(t, "blkid", "-p", f.Name()); !strings.Contains(out, `LABEL="CONFIG-2"`) ||
				!strings.Contains(out, `UUID="1234-ABCD"`) || !strings.Contains(out, `TYPE="vfat"`) {
				t.Errorf("blkid sees %s", out)
			}
			back, err := Open(f)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			collect(t, back, back.Root(), "", got)
			if diff := cmp.Diff(want, got); diff != "" || int64(back.bits) != c.bits {
				t.Errorf("FAT%d, want FAT%d; files (-want +got):\n%s", back.bits, c.bits, diff)
			}
			dir := t.TempDir()
			testenv.Run(t, "mcopy", "-s", "-i", f.Name(), "::/openstack", dir)
			for name, content := range want {
				if !strings.HasPrefix(name, "openstack/") {
					continue
				}
				if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != content {
					t.Fatalf("mtools: %s has %d bytes, %v, want %d", name, len(data), err, len(content))
				}
			}
		})
	}
}

// The same input gives the same bytes, and nothing of what was there before shows.
func TestWriteOverRemains(t *testing.T) {
	nodes, _ := tree()
	v := Volume{Size: 8 * mib, Sector: 512, Label: "CONFIG-2"}
	var images [][]byte
	for _, old := range []byte{0, 0xff} {
		path := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(path, bytes.Repeat([]byte{old}, int(v.Size)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := v.Write(context.Background(), f, nodes, nil); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, mib)
		if _, err := f.ReadAt(data, 0); err != nil {
			t.Fatal(err)
		}
		images = append(images, data)
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("remains of what was there before shine through")
	}
}

func TestWriteRefuses(t *testing.T) {
	failure := errors.New("medium error")
	small := Volume{Size: 2 * mib, Sector: 512, Label: "X"}
	var many []Node
	for i := range 300 {
		many = append(many, file(fmt.Sprint("file", i), ""))
	}
	for _, c := range []struct {
		name   string
		volume Volume
		nodes  []Node
		want   string
	}{
		{"too much", small, []Node{file("f", strings.Repeat("x", 2*mib))}, ErrFull.Error()},
		{"too much in all", small, []Node{file("f", strings.Repeat("x", mib)), file("g", strings.Repeat("x", mib))}, `"g"`},
		{"topmost folder", small, many, "topmost folder"},
		{"too large for FAT", Volume{Size: 8 << 30, Sector: 512}, []Node{{Name: "f", Size: 1 << 32}}, "FAT allows 4294967295"},
		{"no room", Volume{Size: 16 << 10, Sector: 512}, nil, ErrFull.Error()},
		{"sectors", Volume{Size: mib, Sector: 8192}, nil, "8192"},
		{"case", small, []Node{file("Name", ""), file("name", "")}, "case"},
		{"colon", small, []Node{file("a:b", "")}, "of this name"},
		{"dot at the end", small, []Node{file("a.", "")}, "of this name"},
		{"name of 256", small, []Node{file(strings.Repeat("n", 256), "")}, "of this name"},
		{"filling", small, []Node{file("a\uffffb", "")}, "of this name"},
		{"no UTF-8", small, []Node{file("a\xff", "")}, "of this name"},
		{"other length", small, []Node{{Name: "f", Size: 2, Content: func() ([]byte, error) { return nil, nil }}}, "want 2"},
		{"unreadable", small, []Node{folder("d", Node{Name: "f", Content: func() ([]byte, error) { return nil, failure }})}, `"d": file "f": medium`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := write(t, c.volume, c.nodes)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if _, err := Open(f); !errors.Is(err, ErrNoFAT) {
				t.Errorf("after a failure: got %v, want no file system", err)
			}
		})
	}
}

// FuzzWrite writes a file of any name. If the name is accepted, the file is found by it.
func FuzzWrite(f *testing.F) {
	for _, name := range []string{"meta_data.json", ".", "..", "a/b", "größe", "CON", strings.Repeat("😀", 128), "a ", "~1", "\xff"} {
		f.Add(name, "content")
	}
	f.Fuzz(func(t *testing.T, name, content string) {
		w := memory(make([]byte, 256<<10))
		err := Volume{Size: int64(len(w)), Sector: 512}.Write(context.Background(), w, []Node{folder("d", file(name, content), file("0", ""))}, nil)
		if err != nil {
			return
		}
		back, err := Open(bytes.NewReader(w))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		collect(t, back, back.Root(), "", got)
		if got["d/"+name] != content || len(got) != 2 {
			t.Errorf("got %q, want the file %q", got, name)
		}
	})
}

type memory []byte

func (m memory) WriteAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > int64(len(m)) {
		return 0, errors.New("beyond the end")
	}
	return copy(m[offset:], p), nil
}
