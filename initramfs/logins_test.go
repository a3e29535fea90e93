package initramfs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// operatorKey was made by ssh-keygen(1).
const operatorKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4rHWVda4RLiXrGHVfLKjWRXocdXOyf9ShRwA+KseoM operator\n"

// Keys of operators are checked when the image is built. Errors do not contain the text of the file.
func TestAuthorizedKeys(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"keys":        {"# operators\n" + operatorKey + "\n" + operatorKey, ""},
		"empty":       {"", "no key found"},
		"no key":      {operatorKey + "planted\n", "line 2"},
		"private key": {"-----BEGIN OPENSSH PRIVATE KEY-----\nplanted\n", "line 1: a private key"},
		"options":     {`command="planted" ` + operatorKey, "line 1: options"},
		"1 MiB":       {strings.Repeat(operatorKey, 1<<20/len(operatorKey)), "bytes, want at most"},
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		records, err := newKeysBuilder(path).authorizedKeys()
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) ||
				strings.Contains(err.Error(), "planted") {
				t.Errorf("%s: got error %v, want %q with the path and without the text", name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range records {
			got[r.Name] = fmt.Sprintf("%o %s", r.Mode&0o777, content(t, r))
		}
		want := map[string]string{"root/.ssh": "700 ", "root/.ssh/authorized_keys": "600 " + c.text}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if records, err := newKeysBuilder("").authorizedKeys(); len(records) > 0 || err != nil {
		t.Errorf("without a file: got %v, %v, want nothing", records, err)
	}
	if _, err := newKeysBuilder(filepath.Join(t.TempDir(), "missing")).authorizedKeys(); err == nil {
		t.Error("a file that is missing is no error")
	}
}

// A userland of a rescue is packed like a manager root, but needs no name, and its programs are not checked as
// managers.
func TestRescueRoot(t *testing.T) {
	testenv.Programs(t, "unsquashfs")
	dir := files(t, map[string]string{
		"odd name/usr/bin/tool": "tool", "odd name/proc/planted": "no",
		"odd name/" + managersDir + "/text": "no manager",
		"text":                              "no tarball",
	})
	b := &builder{Options: Options{Arch: "amd64", Progress: io.Discard, RescueRoot: filepath.Join(dir, "odd name")}}
	records, err := b.rescueRoot(t.Context())
	if err != nil || len(records) != 1 || records[0].Name != "usr/lib/ironroot/rescue.squashfs" {
		t.Fatalf("got %v, %v, want the image", records, err)
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, content(t, records[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	list := testenv.Run(t, "unsquashfs", "-lc", image)
	if !strings.Contains(list, "/usr/bin/tool\n") || strings.Contains(list, "planted") {
		t.Errorf("got files\n%s\nwant the tool, and nothing in /proc", list)
	}
	for source, want := range map[string]string{
		filepath.Join(dir, "absent"): "no such file or directory",
		filepath.Join(dir, "text"):   "rescue root " + dir + "/text: ",
	} {
		b.RescueRoot = source
		if _, err := b.rescueRoot(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", source, err, want)
		}
	}
	b.RescueRoot = ""
	if records, err := b.rescueRoot(t.Context()); len(records) > 0 || err != nil {
		t.Errorf("without a root: got %v, %v, want nothing", records, err)
	}
}

// newKeysBuilder returns a builder of an image with the keys of a file.
func newKeysBuilder(name string) *builder { return &builder{Options: Options{AuthorizedKeys: name}} }
