package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// unpackAll unpacks layers into a new directory.
func unpackAll(t testing.TB, limits Limits, layers ...[]byte) (string, error) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	u, err := NewUnpacker(root, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for _, l := range layers {
		if err := u.Unpack(t.Context(), bytes.NewReader(l)); err != nil {
			return root, err
		}
	}
	return root, nil
}

// entry is an entry of an archive: a name with the content of a file, or a header.
type entry struct {
	name, content string
	header        tar.Header
}

// archiveOf makes an archive that tar would not make.
func archiveOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.header
		h.Name, h.Size = e.name, int64(len(e.content))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(e.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A tree that Debian's tar has packed is the same tree again: types, owners, modes, times, links, devices, holes and
// extended attributes. The comparison is made by tar and by find.
func TestUnpackTar(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "tar", "setcap", "getcap", "setfattr", "getfattr", "mkfifo", "find")
	tree := t.TempDir()
	script := `cd "$0" && umask 0 &&
		mkdir -p usr/bin usr/lib empty && chmod 1777 empty &&
		echo text >usr/bin/file && chmod 4755 usr/bin/file && setcap cap_net_raw+ep usr/bin/file &&
		setfattr -n security.selinux -v system_u:object_r:bin_t:s0 usr/bin/file &&
		setfattr -n trusted.overlay.opaque -v y usr &&
		ln usr/bin/file usr/bin/hard && ln -s ../lib/target usr/bin/link && ln -s /usr/lib lib &&
		ln -s /nowhere dangling &&
		mkfifo pipe && mknod null c 1 3 && mknod disk b 7 200 &&
		truncate -s 100M sparse && echo end >>sparse && dd if=/dev/urandom of=usr/lib/big bs=64k count=9 status=none &&
		chown 1000:2000 usr/lib/big && chown -h 3000:3000 dangling &&
		printf '\305\202' >"usr/lib/$(printf '\305\202')" &&
		mkdir "$(printf '%0150d' 7)" && touch "$(printf '%0150d' 7)/$(printf '%0150d' 8)" &&
		find . -exec touch -h -d 2001-02-03T04:05:06 {} +`
	testenv.Run(t, "sh", "-c", script, tree)
	packed := testenv.Run(t, "tar", "--sparse", "--xattrs", "--xattrs-include=*", "--numeric-owner", "--format=pax",
		"-C", tree, "-cf", "-", ".")
	root, err := unpackAll(t, DefaultLimits, []byte(packed))
	if err != nil {
		t.Fatal(err)
	}
	list := func(dir string) string {
		return testenv.Run(t, "sh", "-c", `cd "$0" && find . -printf '%p %y %m %U:%G %Ts %l %n\n' | sort &&
			find . -type f -exec sha256sum {} + | sort && getcap -r . && stat -c '%t:%T' null disk &&
			getfattr -hn security.selinux usr/bin/file`, dir)
	}
	if diff := cmp.Diff(list(tree), list(root)); diff != "" {
		t.Errorf("the tree differs (-packed +unpacked):\n%s", diff)
	}
	var info unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "sparse"), &info); err != nil || info.Blocks*512 > 1<<20 {
		t.Errorf("the sparse file takes %d bytes (%v), want less than a MiB", info.Blocks*512, err)
	}
	if _, err := unix.Lgetxattr(filepath.Join(root, "usr"), "trusted.overlay.opaque", nil); err == nil {
		t.Error("an attribute of overlayfs was unpacked")
	}
}

// Whiteouts remove what lower layers have, and nothing that their own layer has.
func TestWhiteouts(t *testing.T) {
	testenv.Root(t)
	lower := archiveOf(t, entry{name: "./"}, entry{name: "a/"}, entry{name: "a/one", content: "1"},
		entry{name: "a/two", content: "2"}, entry{name: "a/sub/deep", content: "d"}, entry{name: "b/old", content: "o"},
		entry{name: "b/sub/old", content: "o"}, entry{name: "c", content: "file"}, entry{name: "d/x", content: "x"},
		entry{name: "e", header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "b"}},
		entry{name: "f/kept", content: "k"})
	upper := archiveOf(t, entry{name: "a/.wh.one"}, entry{name: "a/.wh.sub"}, entry{name: "a/.wh.missing"},
		entry{name: "b/sub/new", content: "n"}, entry{name: "b/new", content: "n"}, entry{name: "b/.wh..wh..opq"},
		entry{name: "e/by-link", content: "l"}, entry{name: "c/"}, entry{name: "c/now", content: "a directory"},
		entry{name: "d", content: "now a file"}, entry{name: "new", content: "n"}, entry{name: ".wh.new"},
		entry{name: ".wh..wh.plnk/x"})
	root, err := unpackAll(t, DefaultLimits, lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a/two", "b/by-link", "b/new", "b/sub/new", "c/now", "d", "e", "f/kept", "new"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}

// testLimits are small limits.
var testLimits = Limits{Entries: 100, Bytes: 1000, Attributes: 1000, Names: 50000}

// attribute is an empty file with an extended attribute.
func attribute(name, key, value string) entry {
	return entry{name: name, header: tar.Header{PAXRecords: map[string]string{"SCHILY.xattr." + key: value}}}
}

// tinyAttributes are so many files with a small attribute each.
func tinyAttributes(count int) []entry {
	var list []entry
	for i := range count {
		list = append(list, attribute(strconv.Itoa(i), "user.a", "1"))
	}
	return list
}

// Nothing leaves the root, and a bad archive is an error.
func TestUnpackRefuses(t *testing.T) {
	testenv.Root(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(name, target string) entry {
		return entry{name: name, header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: target}}
	}
	hard := func(name, target string) entry {
		return entry{name: name, header: tar.Header{Typeflag: tar.TypeLink, Linkname: target}}
	}
	up := strings.Repeat("../", 20)
	for name, tt := range map[string]struct {
		entries []entry
		want    string // "" if the archive is harmless
	}{
		"up":            {[]entry{{name: "../x"}}, "out of the root"},
		"up inside":     {[]entry{{name: "a/../../x"}}, "out of the root"},
		"absolute":      {[]entry{{name: secret, content: "x"}}, ""},
		"absolute link": {[]entry{link("l", outside), {name: "l/secret", content: "x"}}, "no such file"},
		"relative link": {[]entry{link("l", up+outside), {name: "l/secret", content: "x"}}, "no such file"},
		"chain of links": {
			[]entry{link("a", up), link("b", "a"+outside), {name: "b/secret", content: "x"}}, "no such file",
		},
		"file through a link": {[]entry{link("secret", secret), {name: "secret", content: "x"}}, ""},
		"magic link": {
			[]entry{link("l", "/proc/self/root"), {name: "l" + secret, content: "x"}}, "no such file",
		},
		"hard link":           {[]entry{hard("l", secret)}, "target of the link"},
		"hard link up":        {[]entry{hard("l", up+secret)}, "out of the root"},
		"hard link by link":   {[]entry{link("d", outside), hard("l", "d/secret")}, "target of the link"},
		"hard link to link":   {[]entry{link("s", secret), hard("l", "s"), {name: "l", content: "x"}}, ""},
		"whiteout up":         {[]entry{{name: "a/.wh..."}}, "no name"},
		"whiteout by link":    {[]entry{link("l", outside), {name: "l/.wh.secret"}}, "no such file"},
		"opaque by link":      {[]entry{link("l", outside), {name: "l/.wh..wh..opq"}}, "no such file"},
		"directory over link": {[]entry{link("l", outside), {name: "l/"}, {name: "l/secret", content: "x"}}, ""},
		"file as a directory": {[]entry{{name: "f"}, {name: "f/x"}}, "not a directory"},
		"root as a file":      {[]entry{link("./", "x")}, "root"},
		"loop of links":       {[]entry{link("a", "b"), link("b", "a"), {name: "a/x"}}, "too many levels"},
		"unknown type":        {[]entry{{name: "x", header: tar.Header{Typeflag: 'V'}}}, "unknown type"},
		"long name":           {[]entry{{name: strings.Repeat("a/", 3000) + "x"}}, "bytes, want at most"},
		"deep name":           {[]entry{{name: strings.Repeat("a/", 600) + "x"}}, "components"},
		"long component":      {[]entry{{name: strings.Repeat("a", 300)}}, "too long"},
		"too many entries":    {make([]entry, 200), "more than 100 entries"},
		"too many bytes":      {[]entry{{name: "x", content: strings.Repeat("x", 2000)}}, "more than 1000 bytes"},
		"device number": {
			[]entry{{name: "x", header: tar.Header{Typeflag: tar.TypeChar, Devmajor: 1 << 16}}}, "no such number",
		},
		"owner": {[]entry{{name: "x", header: tar.Header{Uid: 1<<32 - 1}}}, "owner"},
		"long attribute": {
			[]entry{attribute("x", "user.a", strings.Repeat("v", 64<<10+1))},
			"a value of 65537, want at most 255 and 65536",
		},
		"long name of an attribute": {
			[]entry{attribute("x", "user."+strings.Repeat("n", 251), "")}, "a name of 256 bytes",
		},
		"too many attributes": {
			[]entry{
				attribute("x", "user.a", strings.Repeat("v", 600)), attribute("y", "user.a", strings.Repeat("v", 600)),
			},
			"more than 1000 bytes of extended attributes",
		},
		"many tiny attributes": {tinyAttributes(15), "more than 1000 bytes of extended attributes"},
		"few tiny attributes":  {tinyAttributes(14), ""},
		"too many names": { // by directories that have no entry
			[]entry{{name: strings.Repeat("a/", 200) + "x"}, {name: strings.Repeat("b/", 200) + "x"}},
			"more than 50000 bytes of memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tt.entries {
				if tt.entries[i].name == "" {
					tt.entries[i].name = "same"
				}
			}
			root, err := unpackAll(t, testLimits, archiveOf(t, tt.entries...))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
				t.Errorf("the file outside is %q (%v)", text, err)
			}
			if info, err := os.Stat(secret); err != nil || info.Sys().(*syscall.Stat_t).Nlink != 1 {
				t.Errorf("the file outside has another name (%v)", err)
			}
			if entries, err := os.ReadDir(filepath.Dir(root)); err != nil || len(entries) != 1 {
				t.Errorf("got %v beside the root (%v)", entries, err)
			}
		})
	}
	for name, data := range map[string][]byte{
		"no archive": bytes.Repeat([]byte("x"), 2000),
		"cut":        archiveOf(t, entry{name: "x", content: strings.Repeat("x", 900)})[:700],
	} {
		if _, err := unpackAll(t, DefaultLimits, data); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// A full file system is an error that callers recognize.
func TestUnpackFull(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	testenv.Mount(t, "tmpfs", dir, "tmpfs", "size=1m")
	defer testenv.Detach(t, dir)
	u, err := NewUnpacker(dir, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	big := archiveOf(t, entry{name: "big", content: strings.Repeat("x", 2<<20)})
	if err := u.Unpack(t.Context(), bytes.NewReader(big)); !errors.Is(err, unix.ENOSPC) ||
		!strings.Contains(err.Error(), `"big"`) {
		t.Errorf("got %v, want %v with the name of the file", err, unix.ENOSPC)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	cancel(given)
	if err := u.Unpack(ctx, bytes.NewReader(big)); !errors.Is(err, given) {
		t.Errorf("got %v, want %v", err, given)
	}
}

// FuzzUnpack unpacks archives next to a file that none may reach.
func FuzzUnpack(f *testing.F) {
	testenv.Root(f)
	f.Add(archiveOf(f, entry{name: "a/"}, entry{name: "a/b", content: "text"}, entry{name: "a/.wh.b"}), []byte{})
	f.Add(archiveOf(f, entry{name: "l", header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "../outside"}}),
		archiveOf(f, entry{name: "l", content: "x"}, entry{name: "l/.wh..wh..opq"}))
	f.Add(archiveOf(f, entry{name: "h", header: tar.Header{Typeflag: tar.TypeLink, Linkname: "../outside"}}), []byte{})
	f.Add(archiveOf(f, entry{name: "x", header: tar.Header{
		ModTime: time.Unix(1, 0), PAXRecords: map[string]string{"SCHILY.xattr.user.name": "value"},
	}}), []byte("no archive"))
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		root, _ := unpackAll(t, testLimits, lower, upper)
		entries, err := os.ReadDir(filepath.Dir(root))
		if err != nil || len(entries) != 1 || entries[0].Name() != "root" {
			t.Errorf("got %v beside the root (%v)", entries, err)
		}
	})
}
