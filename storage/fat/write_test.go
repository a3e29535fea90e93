package fat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

func file(name, content string) Node {
	return Node{Name: name, Size: int64(len(content)), Content: Bytes(content)}
}

func directory(name string, nodes ...Node) Node { return Node{Name: name, IsDir: true, Nodes: nodes} }

// tree returns difficult files: nested directories, one of many clusters, names with dots, spaces and characters
// outside ASCII, and of 255 units.
func tree() ([]Node, map[string]string) {
	want := map[string]string{
		"openstack/latest/meta_data.json": `{"uuid": "1"}`,
		"openstack/latest/user_data":      strings.Repeat("0123456789abcdef", 3000), "openstack/content/0000": "",
		"a.long.name with spaces.tar.gz": "x", "größe 😀.txt": "y", ".hidden": "z", strings.Repeat("n", 255): "long",
		"UPPER.TXT": "upper",
	}
	many := directory("many")
	for i := range 500 {
		name := fmt.Sprintf("file with number %04d", i)
		many.Nodes = append(many.Nodes, file(name, name))
		want["openstack/many/"+name] = name
	}
	get := func(name string) Node { return file(filepath.Base(name), want[name]) }
	return []Node{
		directory("openstack",
			directory("latest", get("openstack/latest/meta_data.json"), get("openstack/latest/user_data")),
			directory("content", get("openstack/content/0000")), many, directory("empty")),
		get("a.long.name with spaces.tar.gz"), get("größe 😀.txt"), get(".hidden"), get(strings.Repeat("n", 255)),
		get("UPPER.TXT"),
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
			collect(t, back, got)
			if diff := cmp.Diff(want, got); diff != "" || int64(back.reader.bits) != c.bits {
				t.Errorf("FAT%d, want FAT%d; files (-want +got):\n%s", back.reader.bits, c.bits, diff)
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

// A size of clusters that no file system can have is an error.
func TestWriteInvalidCluster(t *testing.T) {
	for _, c := range []struct{ sector, cluster int64 }{
		{512, 256}, {512, 1536}, {512, 64 << 10}, {4096, 2048}, {512, -512},
	} {
		v := Volume{Size: 4 * mib, Sector: c.sector, Cluster: c.cluster}
		err := v.Write(t.Context(), nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("clusters of %d bytes", c.cluster)) {
			t.Errorf("sectors of %d bytes: got %v, want an error that names %d", c.sector, err, c.cluster)
		}
	}
}

// A volume with clusters of one sector is FAT16 from 2.1 MiB. All files have its date. With Short, names of eight and
// three characters in upper case have no long entry; others do.
func TestWriteSmallClusters(t *testing.T) {
	testenv.Programs(t, "fsck.vfat", "mcopy", "mdir")
	many := directory("DIR")
	for a := 'A'; a <= 'Z'; a++ { // more than one cluster of entries
		many.Nodes = append(many.Nodes, file(string(a)+".BIN", strings.Repeat(string(a), int(a)*37)))
	}
	volume := Volume{
		Size: 4 * mib, Sector: 512, Cluster: 512, Label: "IRONROOT", Short: true,
		Date: time.Date(2020, 2, 29, 0, 0, 0, 0, time.UTC),
	}
	for name, nodes := range map[string][]Node{
		"empty file":       {file("A.TXT", "")},
		"one sector":       {directory("A", directory("B", file("C.BIN", strings.Repeat("x", 512))))},
		"many directories": {many},
		"long names": {
			file("lower.txt", "x"), file("LONGER_THAN_8.TXT", "y"), file("LOWER.TXTX", "z"), file("TILDE~1.TXT", ""),
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := write(t, volume, nodes)
			if err != nil {
				t.Fatal(err)
			}
			testenv.Run(t, "fsck.vfat", "-n", f.Name())
			back, err := Open(f)
			if err != nil || back.reader.bits != 16 || back.reader.cluster != 512 {
				t.Fatalf("got %+v and %v, want FAT16 with clusters of 512 bytes", back, err)
			}
			list := testenv.Run(t, "mdir", "-/", "-i", f.Name(), "::/")
			if !strings.Contains(list, "2020-02-29") || strings.Contains(list, "1980") {
				t.Errorf("got\n%s\nwant files of 2020-02-29", list)
			}
			// mdir prints the long name after the time; only the fourth volume has long entries.
			isLong := name == "long names"
			if strings.Contains(list, " lower.txt") != isLong || strings.Contains(list, "~") != isLong {
				t.Errorf("got\n%s\nwant long names and aliases only where they are necessary", list)
			}
			var compare func(prefix string, nodes []Node)
			compare = func(prefix string, nodes []Node) {
				for _, n := range nodes {
					if n.IsDir {
						compare(prefix+n.Name+"/", n.Nodes)
						continue
					}
					want := n.Content.(Bytes)
					if got := testenv.Run(t, "mcopy", "-i", f.Name(), "::"+prefix+n.Name, "-"); got != string(want) {
						t.Errorf("%s%s: got %d bytes, want %d", prefix, n.Name, len(got), len(want))
					}
				}
			}
			compare("/", nodes)
		})
	}
	large := volume
	large.Size = 80 * mib
	if _, err := write(t, large, []Node{file("BIG", strings.Repeat("x", 40*mib))}); !errors.Is(err, ErrFull) {
		t.Errorf("40 MiB in clusters of 512 bytes: got %v, want %v", err, ErrFull)
	}
}

// The same input gives the same bytes, without old content of the device.
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
		{
			"too much in all", small,
			[]Node{file("f", strings.Repeat("x", mib)), file("g", strings.Repeat("x", mib))},
			`"g"`,
		},
		{"topmost directory", small, many, "topmost directory"},
		{
			"too large for FAT",
			Volume{Size: 8 << 30, Sector: 512},
			[]Node{{Name: "f", Size: 1 << 32}},
			"FAT allows 4294967295",
		},
		{"no space", Volume{Size: 16 << 10, Sector: 512}, nil, ErrFull.Error()},
		{"sectors", Volume{Size: mib, Sector: 8192}, nil, "8192"},
		{"case", small, []Node{file("Name", ""), file("name", "")}, "case"},
		{"colon", small, []Node{file("a:b", "")}, "of this name"},
		{"dot at the end", small, []Node{file("a.", "")}, "of this name"},
		{"name of 256", small, []Node{file(strings.Repeat("n", 256), "")}, "of this name"},
		{"filling", small, []Node{file("a\uffffb", "")}, "of this name"},
		{"no UTF-8", small, []Node{file("a\xff", "")}, "of this name"},
		{
			"other length", small,
			[]Node{{Name: "f", Size: 2, Content: Bytes(nil)}},
			"want 2",
		},
		{
			"unreadable", small,
			[]Node{directory("d", Node{Name: "f", Content: unreadable{failure}})},
			`"d": file "f": medium`,
		},
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
	for _, name := range []string{
		"meta_data.json", ".", "..", "a/b", "größe", "CON", strings.Repeat("😀", 128), "a ", "~1", "\xff",
	} {
		f.Add(name, "content")
	}
	f.Fuzz(func(t *testing.T, name, content string) {
		w := memory(make([]byte, 256<<10))
		err := Volume{Size: int64(len(w)), Sector: 512}.Write(context.Background(), w,
			[]Node{directory("d", file(name, content), file("0", ""))}, nil)
		if err != nil {
			return
		}
		back, err := Open(bytes.NewReader(w))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		collect(t, back, got)
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

// The structures have the sizes of the specification, so that their fields are at its offsets.
func TestStructures(t *testing.T) {
	for _, tt := range []struct {
		structure any
		size      int
	}{
		{parameters{}, 36},
		{parameters32{}, 64 - 36},
		{identity{}, 62 - 36},
		{bootSector16{}, 512},
		{bootSector32{}, 512},
		{infoSector{}, 512},
		{shortEntry{}, 32},
		{longEntry{}, 32},
	} {
		if got := binary.Size(tt.structure); got != tt.size {
			t.Errorf("%T: got %d bytes, want %d", tt.structure, got, tt.size)
		}
	}
}

// New file systems have the same bytes in every version of the program.
func TestBytes(t *testing.T) {
	nodes, _ := tree()
	nodes = nodes[:len(nodes)-1] // without UPPER.TXT
	for _, tt := range []struct {
		volume Volume
		want   string
	}{
		{
			Volume{Size: 2 * mib, Sector: 512, Label: "CONFIG-2", Serial: 0x1234abcd},
			"a9692947af8daa2d0e3d475dec4129999c038b4d76c1420cc524cd647ff09bdb",
		},
		{Volume{Size: 64 * mib, Sector: 4096}, "a50db3cdffc48aefbff9816c86dddd364b479f2509f51425211e1ca454e8ff00"},
		{
			Volume{Size: 512 * mib, Sector: 512, Label: "a label of more", Serial: 1},
			"4df2710c3c01c4217e3a181111ec9a8d76fcd9a87880955e41e9d9cd1468935d",
		},
	} {
		f, err := write(t, tt.volume, nodes)
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, min(tt.volume.Size, 4*mib)) // nothing is behind it
		if _, err := f.ReadAt(head, 0); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(head)); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.volume, got, tt.want)
		}
	}
}

// TestCopy copies the files of a file system to another one without holding them in memory. Files of another size than
// announced are errors.
func TestCopy(t *testing.T) {
	ctx := t.Context()
	testenv.Programs(t, "fsck.vfat")
	nodes, want := tree()
	first, err := write(t, Volume{Size: 64 * mib, Sector: 512}, nodes)
	if err != nil {
		t.Fatal(err)
	}
	from, err := Open(first)
	if err != nil {
		t.Fatal(err)
	}
	volume := Volume{Size: 600 * mib, Sector: 512, Label: "COPY", Serial: 5}
	var copied func(directory string) []Node
	copied = func(directory string) []Node {
		files, err := from.ReadDir(directory)
		if err != nil {
			t.Fatal(err)
		}
		var nodes []Node
		for _, f := range files {
			name := path.Join(directory, f.Name())
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			node := Node{Name: f.Name(), IsDir: f.IsDir(), Size: info.Size()}
			if f.IsDir() {
				node.Nodes = copied(name)
			} else {
				node.Content = fileOf{from, name}
			}
			nodes = append(nodes, node)
		}
		return nodes
	}
	second, err := write(t, volume, copied("."))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "fsck.vfat", "-n", second.Name())
	back, err := Open(second)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	collect(t, back, got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
	for _, size := range []int{3, 5} {
		node := Node{Name: "wrong", Size: 4, Content: Bytes(make([]byte, size))}
		_, err := write(t, volume, []Node{node})
		if err == nil || !strings.Contains(err.Error(), `file "wrong": got `) {
			t.Errorf("%d bytes instead of 4: got %v, want an error", size, err)
		}
	}
	if err := from.Copy(ctx, io.Discard, "."); err == nil {
		t.Error("a directory was copied as a file")
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for name, content := range want {
		if content == "" {
			continue
		}
		if err := from.Copy(cancelled, io.Discard, name); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
		}
	}
}

// fileOf is the content of a file of a file system.
type fileOf struct {
	files *FS
	name  string
}

func (f fileOf) Copy(ctx context.Context, w io.Writer) error { return f.files.Copy(ctx, w, f.name) }

// unreadable is content that cannot be read.
type unreadable struct{ err error }

func (u unreadable) Copy(context.Context, io.Writer) error { return u.err }
