// Package machinetest provides directory trees of real machines for tests: sysfs, procfs and the SMBIOS tables of
// servers of several manufacturers, unpacked from one text file per machine in testdata/machines of the repository.
// README.md there lists their origins.
package machinetest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// Names returns the names of the recorded machines.
func Names(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testenv.Top(t), "testdata/machines/*.tree"))
	if err != nil || len(files) == 0 {
		t.Fatalf("list machines: got %d files and %v", len(files), err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".tree")
	}
	return files
}

// System unpacks the machine below a temporary directory of the test.
func System(t testing.TB, name string) sysfs.Root {
	t.Helper()
	return Unpack(t, string(testenv.Data(t, "machines/"+name+".tree")))
}

// Unpack creates a directory tree from a description with one entry per line: "path: content", "path= 0a0b" (content in
// hexadecimal), "path -> target" (a symbolic link), "path/" (a directory) or "smbios ..." (a structure of the SMBIOS
// table). In content, \n is a line feed and \t a tab. A line that starts with # is a comment. A line that ends in a
// backslash continues on the next line.
func Unpack(t testing.TB, description string) sysfs.Root {
	t.Helper()
	sys := sysfs.Root{Path: t.TempDir()}
	var tables []string
	for line := range strings.Lines(strings.ReplaceAll(description, "\\\n", "")) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if structure, ok := strings.CutPrefix(line, "smbios "); ok {
			tables = append(tables, structure)
		} else if path, target, ok := strings.Cut(line, " -> "); ok {
			put(t, sys, path, func(path string) error { return os.Symlink(target, path) })
		} else if path, ok := strings.CutSuffix(line, "/"); ok {
			put(t, sys, path, func(path string) error { return os.MkdirAll(path, 0o755) })
		} else if path, content, ok := strings.Cut(line, "= "); ok {
			raw, err := hex.DecodeString(content)
			if err != nil {
				t.Fatal(err)
			}
			Write(t, sys, path, string(raw))
		} else if path, content, ok := strings.Cut(line, ": "); ok {
			Write(t, sys, path, strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(content))
		} else {
			t.Fatalf("line %q", line)
		}
	}
	if len(tables) > 0 {
		entry, table, err := Tables(tables)
		if err != nil {
			t.Fatal(err)
		}
		Write(t, sys, "sys/firmware/dmi/tables/smbios_entry_point", string(entry))
		Write(t, sys, "sys/firmware/dmi/tables/DMI", string(table))
	}
	return sys
}

// Write creates or replaces a file of the machine.
func Write(t testing.TB, sys sysfs.Root, path, content string) {
	t.Helper()
	put(t, sys, path, func(path string) error { return os.WriteFile(path, []byte(content), 0o644) })
}

func put(t testing.TB, sys sysfs.Root, path string, make func(path string) error) {
	t.Helper()
	path = filepath.Join(sys.Path, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := make(path); err != nil {
		t.Fatal(err)
	}
}
