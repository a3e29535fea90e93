// Package machinetest provides directory trees of real machines for tests: sysfs, procfs and the SMBIOS tables of
// servers of several manufacturers, unpacked from one text file per machine in testdata/machines of the repository.
// README.md there lists their origins.
package machinetest

import (
	"embed"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/storage/block"
)

//go:embed testdata/*.tree
var trees embed.FS

// Names lists the machines.
func Names() []string {
	return []string{"dell-r640", "hpe-dl360-gen10", "supermicro-1029p", "gigabyte-r152", "kvm-q35", "qemu-q35"}
}

// System unpacks the machine below a folder of the test's own.
func System(t testing.TB, name string) block.System {
	t.Helper()
	data, err := trees.ReadFile("testdata/" + name + ".tree")
	if err != nil {
		t.Fatal(err)
	}
	return Unpack(t, string(data))
}

// Unpack makes a folder of a description. A line is "path: content", "path= 0a0b" in hexadecimal, "path -> target", "path/" or
// "smbios ..."; \n and
// \t stand for themselves, # begins a comment line, and a line that ends in a backslash goes on in the next one.
func Unpack(t testing.TB, description string) block.System {
	t.Helper()
	sys := block.System{Root: t.TempDir()}
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

// Write makes or replaces a file of the machine.
func Write(t testing.TB, sys block.System, path, content string) {
	t.Helper()
	put(t, sys, path, func(path string) error { return os.WriteFile(path, []byte(content), 0o644) })
}

func put(t testing.TB, sys block.System, path string, make func(path string) error) {
	t.Helper()
	path = filepath.Join(sys.Root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := make(path); err != nil {
		t.Fatal(err)
	}
}
