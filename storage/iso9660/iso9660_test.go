package iso9660

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/planted"
	"ironroot/internal/test/testenv"
)

// long is a name whose Rock Ridge entry does not fit into the record.
var long = strings.Repeat("a-long-name-", 20) + ".conf"

// source makes the directory from which the images are made.
func source(t testing.TB) string {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"openstack/latest/network_data.json":       `{"links": []}`,
		"etc/ironic-python-agent/ironic.crt":       strings.Repeat("certificate\n", 400),
		"etc/ironic-python-agent.d/Upper.conf":     "[DEFAULT]\n",
		"etc/ironic-python-agent.d/" + long:        "long\n",
		"etc/ironic-python-agent.d/empty.conf":     "",
		"a/b/c/d/e/f/g/h/i/deeper than eight.text": "deep",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "etc/ironic-python-agent.d/link.conf")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// read returns all files with their content, which is "?" for other types of files.
func read(t testing.TB, f *FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(f, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[path] = "?"
		if d.Type().IsRegular() {
			data, err := f.ReadFile(path)
			all[path] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestGenisoimage(t *testing.T) {
	testenv.Programs(t, "genisoimage")
	image := filepath.Join(t.TempDir(), "image.iso")
	publisher := "0B5E55ED-1C67-4D1E-9E0C-3E8A6F2F9D11"
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-J", "-joliet-long", "-V", "config-2", "-publisher", publisher,
		"-o", image, source(t))
	file, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	check(t, file, publisher)
}

// xorriso.iso.gz was made from the same directory by xorriso. See testdata/README.md of the repository.
func TestXorriso(t *testing.T) { check(t, bytes.NewReader(xorriso(t)), "XORRISO-PUBLISHER") }

func xorriso(t testing.TB) []byte {
	zr, err := gzip.NewReader(bytes.NewReader(testenv.Data(t, "media/xorriso.iso.gz")))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func check(t *testing.T, r io.ReaderAt, publisher string) {
	t.Helper()
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	if f.Label() != "config-2" || f.Publisher() != publisher {
		t.Errorf("got label %q, publisher %q, want config-2, %q", f.Label(), f.Publisher(), publisher)
	}
	got := read(t, f)
	want := map[string]string{
		"openstack/latest/network_data.json":   `{"links": []}`,
		"etc/ironic-python-agent/ironic.crt":   strings.Repeat("certificate\n", 400),
		"etc/ironic-python-agent.d/Upper.conf": "[DEFAULT]\n",
		"etc/ironic-python-agent.d/" + long:    "long\n",
		"etc/ironic-python-agent.d/empty.conf": "",
		"etc/ironic-python-agent.d/link.conf":  "?",
	}
	for name := range got { // a directory below the eighth stands elsewhere, which is not followed
		if strings.HasPrefix(name, "a/b/") || strings.HasPrefix(name, "rr_moved") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// Names are those that the kernel shows: of Rock Ridge, otherwise of Joliet, otherwise of ECMA-119 in lower case.
// Labels are read without their padding.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	const latest = "openstack/latest"
	if err := os.MkdirAll(filepath.Join(dir, latest), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"meta_data.json": "{}", "Grüße an Ω.conf": "1", "no-extension": "2", strings.Repeat("l", 60) + ".pem": "3",
	} {
		if err := os.WriteFile(filepath.Join(dir, latest, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := map[string]string{
		latest + "/meta_data.json": "{}", latest + "/Grüße an Ω.conf": "1", latest + "/no-extension": "2",
		latest + "/" + strings.Repeat("l", 60) + ".pem": "3",
	}
	genisoimage := []string{"genisoimage", "-quiet", "-input-charset", "utf-8"}
	xorriso := []string{"xorriso", "-as", "mkisofs", "-quiet", "-input-charset", "utf-8"}
	for _, c := range []struct {
		tool  []string
		flags string
		label string
		long  bool
	}{
		{genisoimage, "-R", "config-2", true},
		{genisoimage, "-J -joliet-long", "CONFIG-2", true},
		{genisoimage, "-R -J", "cidata", true},
		{genisoimage, "-iso-level 3", "CONFIG-2", false},
		{xorriso, "-R", "config-2", true},
		{xorriso, "--norock -J -joliet-long", "CONFIG-2", true},
		{xorriso, "-R -J", "cidata", true},
		{xorriso, "--norock -iso-level 3", "CONFIG-2", false},
	} {
		t.Run(c.tool[0]+" "+c.flags, func(t *testing.T) {
			testenv.Programs(t, c.tool[0])
			image := filepath.Join(t.TempDir(), "image.iso")
			args := append(slices.Clone(c.tool[1:]), strings.Fields(c.flags)...)
			testenv.Run(t, c.tool[0], append(args, "-V", c.label, "-o", image, dir)...)
			data, err := os.ReadFile(image)
			if err != nil {
				t.Fatal(err)
			}
			f, err := Open(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if f.Label() != c.label || f.LongNames() != c.long {
				t.Errorf("got label %q, long names: %t, want %q, %t", f.Label(), f.LongNames(), c.label, c.long)
			}
			got := read(t, f)
			if !c.long { // each tool shortens the other names in its own way
				if name := latest + "/meta_data.json"; len(got) != len(long) || got[name] != "{}" {
					t.Errorf("got files %q, want %d with %s", got, len(long), name)
				}
			} else if diff := cmp.Diff(long, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// With Rock Ridge, names have the leading dot for which genisoimage writes an underscore in their identifier.
func TestLeadingDots(t *testing.T) {
	testenv.Programs(t, "genisoimage")
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".disk"), 0o755),
		os.WriteFile(filepath.Join(dir, ".disk/info"), []byte("info"), 0o600),
		os.WriteFile(filepath.Join(dir, ".hidden.txt"), []byte("hidden"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]map[string]string{
		"-r":                  {".disk/info": "info", ".hidden.txt": "hidden"},
		"-input-charset=utf8": {"_disk/info": "info", "_hidden.txt": "hidden"},
	} {
		image := filepath.Join(t.TempDir(), "image.iso")
		testenv.Run(t, "genisoimage", "-quiet", "-V", "config-2", flag, "-o", image, dir)
		file, err := os.Open(image)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		f, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, f)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", flag, diff)
		}
	}
}

// ECMA-119 names are converted to the names in a mounted file system.
func TestPlainNames(t *testing.T) {
	testenv.Programs(t, "genisoimage")
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image.iso")
	if err := os.WriteFile(filepath.Join(dir, "PARAMS.TXT"), []byte("a=b"), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "genisoimage", "-quiet", "-V", "PLAIN", "-o", image, dir)
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, f)
	if diff := cmp.Diff(map[string]string{"params.txt": "a=b"}, got); diff != "" {
		t.Error(diff)
	}
}

// Names that would lead outside their directory are not listed; others are.
func TestTraversal(t *testing.T) {
	for name, want := range map[string]int{
		"..": 3, ".": 3, "../x": 3, "/etc/p": 3, "a/../b": 3, "x\x00y": 3, "good": 4,
	} {
		data := xorriso(t)
		at := bytes.Index(data, []byte("empty.conf"))
		if at < 0 || string(data[at-5:at-3]) != "NM" {
			t.Fatal("the golden image has no name to plant")
		}
		left := len("empty.conf") - len(name) // becomes a padding entry
		copy(data[at:], name+"PD"+string([]byte{byte(left), 1}))
		data[at-3] = byte(5 + len(name))
		f, err := Open(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		walk(t, f, ".", 0)
		if got, err := f.ReadDir("etc/ironic-python-agent.d"); err != nil || len(got) != want {
			t.Errorf("name %q: got %d files and error %v, want %d", name, len(got), err, want)
		}
	}
}

// walk fails the test for a name that leads outside its directory, and for more content than the file has.
func walk(t *testing.T, f *FS, directory string, depth int) {
	files, err := f.ReadDir(directory)
	if err != nil || depth > 3 {
		return
	}
	for i, file := range files {
		name := file.Name()
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
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
		if err != nil && !utf8.ValidString(name) {
			continue
		}
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

// An image is a correct [fs.FS].
func TestFS(t *testing.T) {
	m := newMedium(file(), dirRecord("D", flagDir, areaSector, sectorSize))
	at := areaSector * sectorSize
	for _, r := range [][]byte{
		dirRecord("\x00", flagDir, areaSector, sectorSize), dirRecord("\x01", flagDir, rootSector, sectorSize), file(),
	} {
		at += copy(m[at:], r)
	}
	f, err := Open(bytes.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(f, "f.txt", "d/f.txt"); err != nil {
		t.Error(err)
	}
}

func TestNoISO(t *testing.T) {
	for _, data := range [][]byte{nil, make([]byte, 100<<10), xorriso(t)[:30<<10]} {
		if _, err := Open(bytes.NewReader(data)); !errors.Is(err, ErrNoISO) {
			t.Errorf("%d bytes: got %v, want %v", len(data), err, ErrNoISO)
		}
	}
}

// A truncated medium is an error and not a shorter file.
func TestTruncated(t *testing.T) {
	data := xorriso(t)
	at := bytes.Index(data, []byte("certificate\n"))
	f, err := Open(bytes.NewReader(data[:at+100]))
	if err != nil {
		t.Fatal(err)
	}
	content, err := f.ReadFile("etc/ironic-python-agent/ironic.crt")
	if !strings.Contains(errorText(err), "bytes, want 4800") {
		t.Errorf("got %d bytes and error %v, want an error for a file that is cut off", len(content), err)
	}
}

// FuzzISO reads images with changed bytes. Reading always ends, names do not lead outside their directory, and no more
// data are returned than requested.
func FuzzISO(f *testing.F) {
	data := xorriso(f)
	image := planted.New(data)
	f.Add([]byte{})
	const volume = firstVolume * sectorSize
	f.Add(image.Patch(volume, data[volume:volume+190]))
	f.Add(image.Patch(volume+128, []byte{0, 2}))                           // blocks of 512 bytes
	f.Add(image.Patch(volume+156+10, []byte{0, 0, 0, 0x80}))               // a topmost directory of 2 GiB
	f.Add(image.Patch(volume+156+2, []byte{firstVolume, 0, 0, 0}))         // a directory that is none
	f.Add(image.Patch(volume+sectorSize, []byte("\x01CD001\x01\x00\x00"))) // another primary volume
	for _, mark := range []string{"SP\x07\x01", "NM", "CE\x1c\x01", "SL", "CL\x0c\x01", "PX", "RR"} {
		if i := bytes.Index(data, []byte(mark)); i >= 0 {
			f.Add(image.Patch(i, bytes.Clone(data[i:][:32])))
		}
	}
	if i := bytes.Index(data, []byte("SP\x07\x01")); i >= 0 {
		f.Add(image.Patch(i, []byte("XX"))) // the names of Joliet
	}
	f.Fuzz(func(t *testing.T, patches []byte) {
		if tree, err := Open(image.With(patches)); err == nil {
			walk(t, tree, ".", 0)
		}
	})
}
