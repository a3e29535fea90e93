package initramfs

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"ironroot/internal/test/testenv"
)

// unpackRoot packs a root and returns its files: path and content, target of a link, or "" for a directory.
func unpackRoot(t *testing.T, source string) (map[string]string, error) {
	t.Helper()
	testenv.Programs(t, "unsquashfs")
	b := &builder{Options: Options{Arch: "amd64", Progress: io.Discard, ManagerRoots: []string{source}}}
	records, err := b.roots(t.Context())
	if err != nil {
		return nil, err
	}
	if len(records) != 2 {
		t.Fatalf("got %d records, want a directory and a root", len(records))
	}
	image := filepath.Join(t.TempDir(), filepath.Base(records[1].Name))
	if err := os.WriteFile(image, content(t, records[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "root")
	testenv.Run(t, "unsquashfs", "-quiet", "-no-progress", "-dest", dir, image)
	found := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text := ""
		switch {
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text = "-> " + target
		case !d.IsDir():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		}
		found[below] = text
		return nil
	})
	return found, err
}

// A directory is packed without the content of directories where the ramdisk mounts something, and without devices.
func TestRootOfDirectory(t *testing.T) {
	testenv.Root(t) // makes a device node
	dir := files(t, map[string]string{
		"userland/usr/bin/tool": "tool", "userland/proc/planted": "no", "userland/tmp/planted": "no",
	})
	root := filepath.Join(dir, "userland")
	testenv.Run(t, "mknod", filepath.Join(root, "usr/null"), "c", "1", "3")
	testenv.Run(t, "ln", filepath.Join(root, "usr/bin/tool"), filepath.Join(root, "usr/bin/other"))
	testenv.Run(t, "ln", "-s", "tool", filepath.Join(root, "usr/bin/link"))
	got, err := unpackRoot(t, root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		".": "", "dev": "", "proc": "", "run": "", "sys": "", "tmp": "", "usr": "", "usr/bin": "",
		"usr/bin/tool": "tool", "usr/bin/other": "tool", "usr/bin/link": "-> tool",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}

// imageOf returns an image with a layer for each map of files. A directory ends with a slash.
func imageOf(t *testing.T, layers ...map[string]string) v1.Image {
	t.Helper()
	image := empty.Image
	for _, files := range layers {
		var data bytes.Buffer
		w := tar.NewWriter(&data)
		var names []string
		for name := range files {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			h := &tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(files[name]))}
			if target, ok := strings.CutPrefix(files[name], "-> "); ok {
				h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				if _, err := io.WriteString(w, files[name]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		image = withLayer(t, image, data.Bytes())
	}
	return image
}

// withLayer returns an image with one more layer, a tar archive.
func withLayer(t *testing.T, image v1.Image, data []byte) v1.Image {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	return image
}

// save writes an image to a file, as docker save does, and returns its path.
func save(t *testing.T, image v1.Image) string {
	t.Helper()
	tag, err := name.NewTag("root")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "root.tar")
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		t.Fatal(err)
	}
	return file
}

// A container image is packed from an OCI layout, from a tarball and from a registry: its layers are applied, with
// their whiteouts. Damaged layers are refused, and so are paths that lead out of the root.
func TestRootOfContainerImage(t *testing.T) {
	image := imageOf(t,
		map[string]string{"usr/bin/tool": "old", "usr/bin/gone": "gone", "etc/link": "-> /usr/bin/tool"},
		map[string]string{"usr/bin/tool": "new", "usr/bin/.wh.gone": ""})
	dir := t.TempDir()
	path, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"arm64", "amd64"} {
		i := image
		if arch == "arm64" {
			i = imageOf(t, map[string]string{"other": "architecture"})
		}
		err := path.AppendImage(i, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	tag, err := name.NewTag(host + "/vendor/tools:1.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "image.tar"), tag, image); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		".": "", "dev": "", "proc": "", "run": "", "sys": "", "tmp": "", "usr": "", "usr/bin": "", "etc": "",
		"usr/bin/tool": "new", "etc/link": "-> /usr/bin/tool",
	}
	for _, source := range []string{
		filepath.Join(dir, "layout"), filepath.Join(dir, "image.tar"), "oci://" + tag.String(),
	} {
		got, err := unpackRoot(t, source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: files differ (-want +got):\n%s", source, diff)
		}
	}
	outside := save(t, imageOf(t, map[string]string{"a": "b", "../../x": "y"}))
	if got, err := unpackRoot(t, outside); err == nil || !strings.Contains(err.Error(), `unsafe tar path "../../x"`) {
		t.Errorf("got %v, %v, want an error for a path", got, err)
	}
	blobs, err := filepath.Glob(filepath.Join(dir, "layout/blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range blobs { // one of them is a layer
		data, err := os.ReadFile(blob)
		if err != nil {
			t.Fatal(err)
		}
		if data[0] == 0x1f {
			data[len(data)-1] ^= 1
			if err := os.WriteFile(blob, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := unpackRoot(t, filepath.Join(dir, "layout")); err == nil {
		t.Errorf("damaged layers: got %v, want an error", got)
	}
}

const (
	packages = "usr/lib/python3/dist-packages/"
	points   = "[console_scripts]\nx = y:z\n[ironic_python_agent.hardware_managers]\n# a comment\n" +
		"site = site_manager:Site\n"
)

// The adapter is added to roots with plug-ins, and runs each of them but ironic-python-agent's own.
func TestAdapter(t *testing.T) {
	named := func(name string) string { return strings.ReplaceAll(points, "site", name) }
	root := files(t, map[string]string{
		"usr/bin/python3": "python", packages + "site-1.dist-info/entry_points.txt": points,
		packages + "ironic_python_agent-9.egg-info/entry_points.txt":             named("cna"),
		"usr/local/lib/python3.12/site-packages/o_x-2.egg-info/entry_points.txt": named("other"),
		"usr/share/somewhere/unused-2.dist-info/entry_points.txt":                named("unused"),
		packages + "tool-3.dist-info/entry_points.txt":                           "[console_scripts]\nt = t:main\n",
	})
	got, err := unpackRoot(t, root)
	if err != nil {
		t.Fatal(err)
	}
	const dir = "usr/lib/ironroot/"
	var managers []string
	for name := range got {
		if base, ok := strings.CutPrefix(name, dir+"managers/"); ok {
			managers = append(managers, base)
		}
	}
	slices.Sort(managers)
	if diff := cmp.Diff([]string{"ipa-other", "ipa-site"}, managers); diff != "" {
		t.Errorf("managers differ (-want +got):\n%s", diff)
	}
	if text := got[dir+"managers/ipa-site"]; !strings.HasPrefix(text, "#!/usr/bin/python3 -BI\n") ||
		!strings.Contains(text, `main("site")`) {
		t.Errorf("got manager %q", text)
	}
	for _, name := range []string{"ironroot_adapter.py", "shim/ironic_python_agent/__init__.py"} {
		if got[dir+"ipa/"+name] == "" {
			t.Errorf("no file %s", name)
		}
	}
	if err := os.Remove(filepath.Join(root, "usr/bin/python3")); err != nil {
		t.Fatal(err)
	}
	const want = "hardware manager plug-ins other, site: no python3 in /usr/local/bin or /usr/bin"
	if _, err := unpackRoot(t, root); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Roots that cannot be packed are refused.
func TestRootsRefused(t *testing.T) {
	dir := files(t, map[string]string{"one/a": "a", "two/one/a": "a", "text": "no tarball", "odd name/a": "a"})
	for want, roots := range map[string][]string{
		"no such file or directory":            {filepath.Join(dir, "absent")},
		"another one is named one, too":        {filepath.Join(dir, "one"), filepath.Join(dir, "two/one")},
		"manager root " + dir + "/text: ":      {filepath.Join(dir, "text")},
		`name "odd name": want `:               {filepath.Join(dir, "odd name")},
		"could not parse reference: UPPERCASE": {"oci://UPPERCASE"},
	} {
		b := &builder{Options: Options{Arch: "amd64", Progress: io.Discard, ManagerRoots: roots}}
		if _, err := b.roots(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", roots, err, want)
		}
	}
}
