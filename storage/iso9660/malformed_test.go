package iso9660

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Parts of the image of newMedium, in sectors.
const rootSector, areaSector, dataSector, mediumSectors = 20, 21, 22, 64

const volumeAt = firstVolume * sectorSize

// medium is an image with one directory, which a test can change. Numbers in parentheses are
// clauses of ECMA-119.
type medium []byte

// newMedium makes an image with Rock Ridge whose root directory has the given records after "." and "..".
func newMedium(records ...[]byte) medium {
	m := make(medium, mediumSectors*sectorSize)
	copy(m[volumeAt:], "\x01CD001\x01")
	binary.LittleEndian.PutUint32(m[volumeAt+80:], mediumSectors) // volume space size (8.4.8)
	binary.LittleEndian.PutUint16(m[volumeAt+128:], sectorSize)   // logical block size (8.4.12)
	copy(m[volumeAt+156:], dirRecord("\x00", flagDir, rootSector, sectorSize))
	copy(m[volumeAt+sectorSize:], "\xffCD001\x01")
	copy(m[dataSector*sectorSize:], "content")
	at := rootSector * sectorSize
	dot := dirRecord("\x00", flagDir, rootSector, sectorSize, use("SP", 0xbe, 0xef, 0))
	for _, r := range append([][]byte{dot, dirRecord("\x01", flagDir, rootSector, sectorSize)}, records...) {
		at += copy(m[at:], r)
	}
	return m
}

// dirRecord makes a directory record (9.1) with system use entries.
func dirRecord(name string, flags byte, sector, size uint32, entries ...[]byte) []byte {
	r := make([]byte, recordHeader)
	binary.LittleEndian.PutUint32(r[2:], sector)
	binary.LittleEndian.PutUint32(r[10:], size)
	r[25], r[32] = flags, byte(len(name))
	r = append(r, name...)
	if len(name)%2 == 0 {
		r = append(r, 0)
	}
	r = append(r, bytes.Join(entries, nil)...)
	r[0] = byte(len(r))
	return r
}

// use makes a system use entry (SUSP, 4.1).
func use(signature string, data ...byte) []byte {
	return append([]byte{signature[0], signature[1], byte(4 + len(data)), 1}, data...)
}

// continued makes an entry CE (SUSP, 5.1).
func continued(sector, offset, length uint32) []byte {
	data := make([]byte, 24)
	for i, value := range []uint32{sector, offset, length} {
		binary.LittleEndian.PutUint32(data[8*i:], value)
	}
	return use("CE", data...)
}

// posix makes an entry PX (Rock Ridge, 4.1.1) with a file mode.
func posix(mode uint32) []byte {
	return use("PX", append(binary.LittleEndian.AppendUint32(nil, mode), make([]byte, 28)...)...)
}

// name makes an entry NM (Rock Ridge, 4.1.4).
func name(s string) []byte { return use("NM", append([]byte{0}, s...)...) }

// file makes the record of a regular file with system use entries.
func file(entries ...[]byte) []byte { return dirRecord("F.TXT;1", 0, dataSector, 7, entries...) }

// Each malformed medium is an error that names the cause. It is no empty directory, and no file with another name.
func TestMalformed(t *testing.T) {
	with := func(m medium, at int, data ...byte) medium {
		copy(m[at:], data)
		return m
	}
	directorySize := func(size uint32) []byte { return binary.LittleEndian.AppendUint32(nil, size) }
	const root = volumeAt + 156
	longNames := newMedium(file(continued(areaSector, 0, sectorSize)))
	copy(longNames[areaSector*sectorSize:], bytes.Repeat(name(strings.Repeat("n", 200)), 6))
	endless := newMedium(file(continued(areaSector, 0, 28)))
	copy(endless[areaSector*sectorSize:], continued(areaSector, 0, 28))
	damaged := newMedium(file(continued(areaSector, 0, 28)))
	copy(damaged[areaSector*sectorSize:], "XX\x03\x01")
	supplementary := newMedium()
	for n := range maxDescriptors {
		copy(supplementary[volumeAt+n*sectorSize:], "\x02CD001\x01")
	}
	tests := []struct {
		name   string
		medium medium
		want   string
	}{
		{"block size", with(newMedium(), volumeAt+128, 0, 3), "got blocks of 768 bytes, want 512, 1024 or 2048"},
		{"no primary volume descriptor", supplementary, ErrNoISO.Error()},
		{"root record", with(newMedium(), root+32, 0), "root directory: record of 34 bytes with a name of 0 bytes"},
		{"root is a file", with(newMedium(), root+25, 0), "root directory: got a file"},
		{
			"root too large", with(newMedium(), root+10, directorySize(maxDir+1)...),
			"directory /: got 2097153 bytes, want at most 2097152",
		},
		{
			"record header", with(newMedium([]byte("\x22rest")), root+10, directorySize(75+5)...),
			"directory /: offset 75: record: got 5 bytes, want at least 34",
		},
		{"record", newMedium([]byte("\x22")), "directory /: offset 75: record of 34 bytes with a name of 0 bytes"},
		{"entry", newMedium(file([]byte("XX\x03\x01"))), `record "f.txt": system use entry "XX" of 3 bytes`},
		{"entry after the record", newMedium(file([]byte("XX\x05\x01"))), `entry "XX" of 5 bytes in 4 bytes`},
		{"entry in a continuation area", damaged, `record "f.txt": system use entry "XX" of 3 bytes`},
		{"PX", newMedium(file(use("PX", 0, 0, 0))), `record "f.txt": entry PX of 3 bytes`},
		{"CE", newMedium(file(use("CE", make([]byte, 23)...))), `record "f.txt": entry CE: got 23 bytes, want 24`},
		{
			"CE across sectors", newMedium(file(continued(areaSector, 2000, 49))),
			"continuation area at byte 2000 of 49 bytes crosses the end of a sector",
		},
		{"CE outside", newMedium(file(continued(1<<20, 0, 28))), "continuation area: EOF"},
		{"endless CE", endless, "more than 16 continuation areas"},
		{"long name", longNames, "name of more than 1024 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files, err := listRoot(bytes.NewReader(test.medium))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got files %v and error %v, want %q", files, err, test.want)
			}
		})
	}
}

func listRoot(r io.ReaderAt) ([]fs.DirEntry, error) {
	f, err := Open(r)
	if err != nil {
		return nil, err
	}
	return f.ReadDir(".")
}

type failingReader struct{ err error }

func (r failingReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

// A medium that cannot be read is not one without a file system.
func TestReadError(t *testing.T) {
	want := errors.New("medium error")
	if _, err := Open(failingReader{want}); !errors.Is(err, want) || errors.Is(err, ErrNoISO) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// A file system whose root directory is outside of the medium is not opened.
func TestOpenRootError(t *testing.T) {
	m := newMedium()
	m[volumeAt+156+2] = 0xff
	if f, err := Open(bytes.NewReader(m)); !strings.Contains(errorText(err), "file /: got 0 bytes, want 2048") {
		t.Errorf("got %v and error %v, want an error of the root directory", f, err)
	}
}

// A directory that became unreadable after Open is an error and not empty.
func TestListReadError(t *testing.T) {
	f, err := Open(bytes.NewReader(newMedium(file())))
	if err != nil {
		t.Fatal(err)
	}
	f.reader.r = failingReader{errors.New("medium error")}
	if files, err := f.ReadDir("."); !strings.Contains(errorText(err), "file /: medium error") {
		t.Errorf("got files %v and error %v, want a medium error", files, err)
	}
}

// Reading a directory as a file and listing a file as a directory fail.
func TestWrongKind(t *testing.T) {
	f, err := Open(bytes.NewReader(newMedium(file(), file(name("link"), use("SL", 0)))))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{".": "is a directory", "link": "not a regular file"} {
		if data, err := f.ReadFile(name); !strings.Contains(errorText(err), want) {
			t.Errorf("read of %s: got %q and error %v", name, data, err)
		}
	}
	if files, err := f.ReadDir("f.txt"); !strings.Contains(errorText(err), "f.txt: not a directory") {
		t.Errorf("list of a file: got %v and error %v", files, err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Rock Ridge entries decide what a record is: only directories and regular files that are in one piece can be read.
func TestKinds(t *testing.T) {
	const modeLink, modeDevice, modeFile, modeDir = 0o120777, 0o020600, 0o100644, 0o040755
	tests := []struct {
		name   string
		record []byte
		want   fs.FileMode // type
	}{
		{"no entries", file(), 0},
		{"file", file(posix(modeFile)), 0},
		{"directory", dirRecord("D", flagDir, rootSector, sectorSize, posix(modeDir)), fs.ModeDir},
		{"device", file(posix(modeDevice)), fs.ModeIrregular},
		{"link in PX", file(posix(modeLink)), fs.ModeIrregular},
		{
			"directory that PX calls a file", dirRecord("D", flagDir, rootSector, sectorSize, posix(modeFile)),
			fs.ModeIrregular,
		},
		{"file that PX calls a directory", file(posix(modeDir)), fs.ModeIrregular},
		{"link", file(use("SL", 0)), fs.ModeIrregular},
		{"relocated directory", file(use("CL", make([]byte, 8)...)), fs.ModeIrregular},
		{"compressed", file(posix(modeFile), use("ZF", make([]byte, 12)...)), fs.ModeIrregular},
		{"several extents", dirRecord("F", flagMore, dataSector, 7), fs.ModeIrregular},
		{"associated", dirRecord("F", flagAssociated, dataSector, 7), fs.ModeIrregular},
	}
	for _, test := range tests {
		files, err := listRoot(bytes.NewReader(newMedium(test.record)))
		if err != nil || len(files) != 1 {
			t.Errorf("%s: got files %v and error %v, want one", test.name, files, err)
			continue
		}
		if got := files[0].Type(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

// Files are sorted by name whatever the order of the medium. The directory itself and its parent are never listed,
// even if they have other names.
func TestOrder(t *testing.T) {
	parent := dirRecord("\x01", flagDir, rootSector, sectorSize, name("parent"))
	m := newMedium(file(name("c")), parent, file(name("a")), file(name("b")))
	files, err := listRoot(bytes.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The entry SP names the bytes to skip before the system use entries of the other records.
func TestSkippedBytes(t *testing.T) {
	m := newMedium(file([]byte("\xff\xff\xff\xff"), name("named")))
	m[rootSector*sectorSize+34+6] = 4
	files, err := listRoot(bytes.NewReader(m))
	if err != nil || len(files) != 1 || files[0].Name() != "named" {
		t.Errorf("got files %v and error %v, want one called named", files, err)
	}
}

// The content of a file with extended attributes follows them.
func TestExtendedAttributes(t *testing.T) {
	record := dirRecord("F.TXT;1", 0, dataSector-1, 7)
	record[1] = 1 // blocks of the extended attribute record (9.1.2)
	f, err := Open(bytes.NewReader(newMedium(record)))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := f.ReadFile("f.txt"); err != nil || string(data) != "content" {
		t.Errorf("got %q and error %v, want content", data, err)
	}
}

// Size and kind of names are read from the medium.
func TestVolume(t *testing.T) {
	m := newMedium()
	f, err := Open(bytes.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	if f.Size() != int64(len(m)) || !f.LongNames() {
		t.Errorf("got %d bytes, long names %t, want %d, true", f.Size(), f.LongNames(), len(m))
	}
	m[rootSector*sectorSize+34] = 'X'
	if f, err = Open(bytes.NewReader(m)); err != nil || f.LongNames() {
		t.Errorf("without the entry SP: got long names %t and error %v, want false", f.LongNames(), err)
	}
}
