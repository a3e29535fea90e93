package bill

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/release/spdx"
)

// The modules are those that are linked, also in place of others. Those that are not in the cache have no directory.
func TestModulesOf(t *testing.T) {
	cache := t.TempDir()
	cached := filepath.Join(cache, "example.com/!upper@v1.0.0")
	if err := os.MkdirAll(cached, 0o755); err != nil {
		t.Fatal(err)
	}
	info := &debug.BuildInfo{
		GoVersion: "go1.26.1", Main: debug.Module{Path: "example.com/main", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.com/Upper", Version: "v1.0.0", Sum: "h1:AAAA"},
			{
				Path: "example.com/old", Version: "v1.0.0",
				Replace: &debug.Module{Path: "example.com/new", Version: "v2.0.0", Sum: "h1:////"},
			},
			{Path: "invalid path", Version: "v1.0.0"},
			{Path: "example.com/Upper", Version: "invalid version"},
		},
	}
	dirs := Directories{Cache: cache, Root: "/go", Others: map[string]string{"example.com/main": "/source"}}
	want := []Module{
		{Path: standard, Version: "1.26.1", Dir: "/go"},
		{Path: "example.com/main", Version: "(devel)", Dir: "/source"},
		{Path: "example.com/Upper", Version: "v1.0.0", Dir: cached, Sum: "h1:AAAA"},
		{Path: "example.com/new", Version: "v2.0.0", Sum: "h1:////"},
		{Path: "invalid path", Version: "v1.0.0"},
		{Path: "example.com/Upper", Version: "invalid version"},
		{Path: "example.com/more", Version: "v3.0.0"},
	}
	if diff := cmp.Diff(want, modulesOf(info, []string{"example.com/more v3.0.0"}, dirs)); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}

// A document lists the modules of a program with version, licence and hash. A version that is not one is left out.
func TestAddModules(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "LICENSE"), isc)
	d := spdx.New("whole", "1", strings.Repeat("0", 64), "ARCHIVE")
	program := d.AddFile("program", []byte("content"), "", "")
	err := AddModules(d, program, []Module{
		{Path: "example.com/Licensed", Version: "v1.0.0", Dir: dir, Sum: "h1:AAAA"}, {Path: "main", Version: "(devel)"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, linked := map[string][3]string{}, map[string]bool{}
	for _, r := range d.Relationships {
		linked[r.To] = r.From == program && r.Type == "STATIC_LINK"
	}
	for _, p := range d.Packages[1:] {
		got[p.Name] = [3]string{p.Version, p.Declared, p.DirHash}
		if !linked[p.ID] {
			t.Errorf("%s is not linked to the program: got %v", p.Name, d.Relationships)
		}
	}
	want := map[string][3]string{"example.com/Licensed": {"v1.0.0", "ISC", "000000"}, "main": {"", spdx.Unknown, ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	err = AddModules(d, program, []Module{{Path: "x", Version: "v1.0.0", Dir: filepath.Join(dir, "missing")}})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: got %v, want %v", err, fs.ErrNotExist)
	}
}

// isc is a licence.
const isc = `ISC License

Copyright (c) 2026 Someone

Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby
granted, provided that the above copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL
IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN
AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR
PERFORMANCE OF THIS SOFTWARE.
`
