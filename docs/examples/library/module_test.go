// Package library tests the programs that docs/library.md shows.
package library

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/fat"
)

// module copies the programs into a module of its own, which requires this one, and returns its directory.
func module(t *testing.T) string {
	t.Helper()
	dir, top := t.TempDir(), testenv.Top(t)
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) == 0 {
		t.Fatalf("got programs %v and error %v", programs, err)
	}
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "module_test.go")); err != nil {
		t.Fatal(err)
	}
	// The requirements are this module's, so that no other modules are fetched.
	text := readFile(t, filepath.Join(top, "go.mod"))
	text = strings.Replace(text, "module ironroot\n", "module example.com/library\n", 1) +
		"\nrequire ironroot v0.0.0\n\nreplace ironroot => " + top + "\n"
	for name, content := range map[string]string{"go.mod": text, "go.sum": readFile(t, filepath.Join(top, "go.sum"))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A module outside of this one can use the packages. Programs that read images or a copy of sysfs also run.
func TestModule(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	dir := module(t)
	testenv.Run(t, "go", "-C", dir, "vet", "./...")
	bin := t.TempDir()
	testenv.Run(t, "go", "-C", dir, "build", "-o", bin, "./...")

	disk := testenv.SparseFile(t, 8<<20)
	testenv.Run(t, "sgdisk", "-n", "1:0:+1M", "-c", "1:first", disk)
	if out := testenv.Run(t, filepath.Join(bin, "disk"), disk); !strings.HasPrefix(out, "gpt ") ||
		!strings.Contains(out, "1 first ") {
		t.Errorf("disk: got %q, want a GPT with one partition", out)
	}

	machine := t.TempDir()
	for name, text := range map[string]string{
		"sys/block/vda/size": "20480\n", "sys/class/block/vda/size": "20480\n", "sys/class/block/vda/ro": "0\n",
	} {
		name = filepath.Join(machine, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, want := testenv.Run(t, filepath.Join(bin, "disks"), machine),
		"/dev/vda disk virtio 10485760  \n"; out != want {
		t.Errorf("disks: got %q, want %q", out, want)
	}

	image, err := os.OpenFile(testenv.SparseFile(t, 1<<20), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	nodes := []fat.Node{{Name: "openstack", IsDir: true, Nodes: []fat.Node{{Name: "latest", IsDir: true}}}}
	if err := (fat.Volume{Size: 1 << 20, Sector: 512}).Write(t.Context(), image, nodes, nil); err != nil {
		t.Fatal(err)
	}
	want := "d--------- .\nd--------- openstack\nd--------- openstack/latest\n"
	if out := testenv.Run(t, filepath.Join(bin, "files"), image.Name()); out != want {
		t.Errorf("files: got %q, want %q", out, want)
	}
}
