package fat

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/planted"
	"ironroot/internal/test/testenv"
)

const mib = 1 << 20

// image makes a file system with mkfs.vfat and fills it with mtools.
func image(t testing.TB, bits int, size int64, label string, files map[string]string) []byte {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mcopy", "mmd")
	path := testenv.SparseFile(t, size)
	args := []string{"-F", fmt.Sprint(bits), "-s", "1", "-i", "1234abcd"}
	if label != "" {
		args = append(args, "-n", label)
	}
	testenv.Run(t, "mkfs.vfat", append(args, path)...)
	testenv.Run(t, "mmd", "-i", path, "::/directory")
	for name, content := range files {
		file := filepath.Join(t.TempDir(), "content")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "mcopy", "-i", path, file, "::/"+name)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRead(t *testing.T) {
	files := map[string]string{
		"parameters.txt":                    "ipa-api-url=http://192.0.2.1 ipa-debug=1\n",
		"directory/A rather long name.conf": strings.Repeat("0123456789abcdef", 3000),
		"directory/EMPTY.TXT":               "",
	}
	for _, c := range []struct {
		bits  int
		size  int64
		label string
		want  string
	}{
		{12, mib, "ir-vfd-dev", "ir-vfd-dev"},
		{16, 8 * mib, "IR-VFD-DEV", "IR-VFD-DEV"},
		{32, 40 * mib, "config-2", "config-2"},
		{12, mib, "", ""},
	} {
		f, err := Open(bytes.NewReader(image(t, c.bits, c.size, c.label, files)))
		if err != nil {
			t.Fatal(err)
		}
		label, err := f.Label()
		if err != nil || label != c.want || f.Serial() != "1234-ABCD" || f.reader.bits != c.bits {
			t.Errorf("got label %q, serial %s, FAT%d, %v, want %q, 1234-ABCD, FAT%d",
				label, f.Serial(), f.reader.bits, err, c.want, c.bits)
		}
		got := map[string]string{}
		collect(t, f, got)
		if diff := cmp.Diff(files, got); diff != "" {
			t.Errorf("FAT%d: files (-want +got):\n%s", c.bits, diff)
		}
	}
}

// A FAT32 file system with fewer clusters than the specification allows, as of mkfs.vfat -F 32 on a small disk, is
// FAT32 for Linux and for blkid. mtools reads none, so the file system is made larger, and then cut off.
func TestSmallFAT32(t *testing.T) {
	testenv.Programs(t, "blkid")
	files := map[string]string{"directory/A rather long name.conf": strings.Repeat("0123456789abcdef", 3000)}
	data := image(t, 32, 40*mib, "config-2", files)
	for _, size := range []int{16 * mib, 2 * mib} { // as many clusters as FAT16 and FAT12 have
		small := bytes.Clone(data[:size])
		binary.LittleEndian.PutUint32(small[32:], uint32(size/512))
		path := filepath.Join(t.TempDir(), "small")
		if err := os.WriteFile(path, small, 0o600); err != nil {
			t.Fatal(err)
		}
		if out := testenv.Run(t, "blkid", "-p", "-s", "VERSION", "-o", "value", path); out != "FAT32\n" {
			t.Errorf("%d bytes: blkid finds the version %q, want FAT32", size, out)
		}
		f, err := Open(bytes.NewReader(small))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		collect(t, f, got)
		label, err := f.Label()
		if diff := cmp.Diff(files, got); err != nil || label != "config-2" || f.Serial() != "1234-ABCD" || diff != "" {
			t.Errorf("%d bytes: got label %q, serial %s, %v, files (-want +got):\n%s",
				size, label, f.Serial(), err, diff)
		}
	}
}

// A FAT with entries of 16 bits cannot have more clusters than there are numbers for.
func TestLargeFAT16(t *testing.T) {
	data := image(t, 16, 8*mib, "", nil)
	binary.LittleEndian.PutUint16(data[19:], 0)
	binary.LittleEndian.PutUint16(data[22:], 512)
	binary.LittleEndian.PutUint32(data[32:], 1<<20)
	if _, err := Open(bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), "want at most 65524") {
		t.Errorf("got %v, want an error of the number of clusters", err)
	}
}

// collect reads all files of a file system.
func collect(t *testing.T, f *FS, into map[string]string) {
	t.Helper()
	err := fs.WalkDir(f, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := f.ReadFile(path)
		into[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each kind of file system is a correct [fs.FS]. Names are compared without case.
func TestFS(t *testing.T) {
	for _, data := range goldens(t) {
		f, err := Open(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		entries, err := f.ReadDir(".")
		if err != nil || len(entries) != 2 {
			t.Fatalf("got %v and error %v, want a directory and a file", entries, err)
		}
		directory := entries[0].Name()
		if err := fstest.TestFS(f, "parameters.txt", directory+"/A rather long name.conf"); err != nil {
			t.Error(err)
		}
		info, err := f.Stat(strings.ToUpper(directory) + "/a rather LONG name.conf")
		if err != nil || info.Name() != "A rather long name.conf" {
			t.Errorf("got %v and error %v, want the name on the medium", info, err)
		}
	}
}

func TestNoFAT(t *testing.T) {
	for _, data := range [][]byte{nil, make([]byte, 100), make([]byte, mib)} {
		if _, err := Open(bytes.NewReader(data)); !errors.Is(err, ErrNoFAT) {
			t.Errorf("%d bytes: got %v, want %v", len(data), err, ErrNoFAT)
		}
	}
}

// A chain of clusters that has a cycle, or ends before the file does, is an error.
func TestBrokenChain(t *testing.T) {
	content := strings.Repeat("x", 5000)
	data := image(t, 16, 8*mib, "", map[string]string{"file": content})
	f, err := Open(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files, _, err := f.reader.List(f.reader.root)
	if err != nil {
		t.Fatal(err)
	}
	file := files[0]
	if file.Name != "file" {
		file = files[1]
	}
	table := f.reader.table
	for _, next := range []uint16{uint16(file.Start), 0xffff, 0} {
		data[table+file.Start*2], data[table+file.Start*2+1] = byte(next), byte(next>>8)
		got, err := f.ReadFile("file")
		if next == uint16(file.Start) && (err != nil || len(got) != len(content)) {
			t.Errorf("circle: got %d bytes, %v, want %d", len(got), err, len(content))
		}
		if next != uint16(file.Start) && err == nil {
			t.Errorf("next cluster %#x: got %d bytes and no error", next, len(got))
		}
	}
}

// A directory whose chain has a cycle, or that exceeds the limit, is an error and not a shorter list.
func TestBrokenDirectory(t *testing.T) {
	for _, c := range []struct {
		bits int
		size int64
		link func(cluster uint16) uint16
		want string
	}{
		{12, mib, func(cluster uint16) uint16 { return cluster }, "runs in a circle"},
		{16, 8 * mib, func(cluster uint16) uint16 { return cluster + 1 }, "more than 2097152 bytes"},
	} {
		data := image(t, c.bits, c.size, "", nil)
		f, err := newReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		files, _, err := f.List(f.Root())
		if err != nil || len(files) != 1 || !files[0].Mode.IsDir() {
			t.Fatalf("got %v, %v, want one directory", files, err)
		}
		first := uint16(files[0].Start)
		if c.bits == 12 && first%2 == 1 {
			t.Fatalf("the directory begins at cluster %d, want an even one", first)
		}
		for cluster := first; cluster < first+4200; cluster++ {
			next := c.link(cluster)
			at := f.table + int64(cluster)*int64(c.bits)/8
			binary.LittleEndian.PutUint16(data[at:], next)
			if next == cluster {
				break
			}
		}
		if list, _, err := f.List(files[0]); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("FAT%d: got %d files and %v, want an error with %q", c.bits, len(list), err, c.want)
		}
	}
}

// goldens are file systems that other programs made, one of each kind, with /parameters.txt and
// "/directory/A rather long name.conf". See testdata/README.md of the repository.
func goldens(t testing.TB) [][]byte {
	t.Helper()
	var images [][]byte
	for _, name := range []string{"fat12", "fat16", "fat32"} {
		unpacked, err := gzip.NewReader(bytes.NewReader(testenv.Data(t, "media/"+name+".img.gz")))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, data)
	}
	return images
}

// FuzzFAT reads file systems with changed bytes. Reading always ends, names do not lead outside their directory, and
// no more data are returned than requested.
func FuzzFAT(f *testing.F) {
	var images []*planted.Image
	for kind, data := range goldens(f) {
		tree, err := newReader(bytes.NewReader(data))
		if err != nil {
			f.Fatal(err)
		}
		files, _, err := tree.List(tree.Root())
		if err != nil || len(files) != 2 {
			f.Fatalf("got %v, %v, want two files", files, err)
		}
		directory, image := files[0], planted.New(data)
		images = append(images, image)
		at := int(tree.data + (directory.Start-2)*tree.cluster)
		f.Add(byte(kind), []byte{})
		f.Add(byte(kind), image.Patch(0, data[:90]))
		// Geometry.
		f.Add(byte(kind), image.Patch(11, []byte{0, 2, 1, 1, 0, 2, 0, 2, 0, 1}))
		// A directory whose chain has a cycle.
		f.Add(byte(kind), image.Patch(int(tree.table)+int(directory.Start)*tree.bits/8,
			[]byte{byte(directory.Start), 0, 0, 0}))
		// Long names.
		f.Add(byte(kind), append(image.Patch(at+64, data[at+64:at+128]), image.Patch(at+128, data[at+64:at+192])...))
		// Names and kinds.
		f.Add(byte(kind), append(image.Patch(at+64, []byte("../../x")),
			image.Patch(at+11, []byte{0x10, 0, 0, 0, 0, 0, 0})...))
	}
	f.Fuzz(func(t *testing.T, kind byte, patches []byte) {
		tree, err := Open(images[int(kind)%len(images)].With(patches))
		if err != nil {
			return
		}
		_, _ = tree.Label()
		walk(t, tree, ".", 0)
	})
}

// walk fails the test for a name that leads outside its directory and for more content than the file has.
func walk(t *testing.T, f *FS, directory string, depth int) {
	files, err := f.ReadDir(directory)
	if err != nil || depth > 2 {
		return
	}
	for i, file := range files {
		name := file.Name()
		if strings.ContainsAny(name, "/\x00") || name == ".." || name == "." {
			t.Fatalf("got the name %q", name)
		}
		if i > 16 {
			continue // one more of the same costs time and shows nothing
		}
		if file.IsDir() {
			walk(t, f, path.Join(directory, name), depth+1)
			continue
		}
		opened, err := f.Open(path.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := opened.Stat()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(io.LimitReader(opened, 4096))
		if want := min(info.Size(), 4096); err == nil && int64(len(data)) != want {
			t.Fatalf("got %d bytes, want %d", len(data), want)
		}
	}
}
