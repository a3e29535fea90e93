package initramfs

import (
	"bytes"
	"debug/buildinfo"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

const exampleManager = "docs/examples/bmcuser"

// buildManagers builds /init with the managers in directories.
func buildManagers(t *testing.T, dirs ...string) ([]byte, error) {
	t.Helper()
	testenv.Programs(t, "go")
	b := &builder{Options: Options{Dir: testenv.Top(t), Managers: dirs, Progress: io.Discard, CacheDir: t.TempDir()}}
	if err := b.setDefaults(); err != nil {
		t.Fatal(err)
	}
	return b.init(t.Context())
}

// files writes files below a new directory and returns it.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// siteManager is a package with a manager, whose New can be replaced.
const siteManager = `package site

import (
	"context"

	"ironroot/agent/hardware"
)

type manager struct{}

func (manager) Class() string                          { return "SiteHardwareManager" }
func (manager) Name() string                           { return "manager of this site" }
func (manager) Version() string                        { return "1" }
func (manager) Support(context.Context) hardware.Level { return hardware.Mainline }

func New(hardware.Machine) hardware.Manager { return manager{} }
`

// Managers come from a package of this module, from one of no module, and from modules of their own. The bytes of
// /init do not depend on the directories.
func TestManagers(t *testing.T) {
	example := filepath.Join(testenv.Top(t), exampleManager)
	text, err := os.ReadFile(filepath.Join(example, "bmcuser.go"))
	if err != nil {
		t.Fatal(err)
	}
	var programs [][]byte
	for range 2 {
		alone := files(t, map[string]string{"bmcuser.go": string(text)})
		// The module names a version of the agent's and its directory, as its own tests need it.
		module := files(t, map[string]string{
			"go.mod": "module example.com/site\n\ngo 1.24\n\nrequire ironroot v1.2.3\n\n" +
				"replace ironroot => ../absent\n",
			"managers/one/site.go": strings.ReplaceAll(siteManager, "manager of this site", "the first of the site"),
			"managers/two/site.go": strings.ReplaceAll(siteManager, "manager of this site", "the second of the site"),
		})
		program, err := buildManagers(t, alone,
			filepath.Join(module, "managers/one"), filepath.Join(module, "managers/two"), example)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := buildinfo.Read(bytes.NewReader(program)); err != nil ||
			!slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
				return s.Key == "DefaultGODEBUG" && strings.Contains(s.Value, "x509negativeserial=1")
			}) {
			t.Errorf("/init: got settings %v, %v, want the GODEBUG of go.mod", info, err)
		}
		for _, want := range []string{"create_bmc_user", "the first of the site", "the second of the site"} {
			if !bytes.Contains(program, []byte(want)) {
				t.Errorf("/init lacks %q", want)
			}
		}
		programs = append(programs, program)
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Error("two builds in different directories differ")
	}
}

// Errors name the directory of the manager, and what is wrong there.
func TestManagerErrors(t *testing.T) {
	const signature = "a package with a manager has the function New(hardware.Machine) hardware.Manager"
	valid := files(t, map[string]string{"site.go": siteManager})
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"no Go files", map[string]string{"README": ""}, []string{"no Go files"}},
		{
			"does not compile",
			map[string]string{"site.go": siteManager + "var x = undefined.Y\n"},
			[]string{"site.go:17:9: undefined: undefined"},
		},
		{
			"no New",
			map[string]string{"site.go": strings.ReplaceAll(siteManager, "New(", "Create(")},
			[]string{"undefined: manager0.New", signature},
		},
		{
			"another New",
			map[string]string{"site.go": strings.ReplaceAll(siteManager, "New(hardware.Machine)", "New()")},
			[]string{"cannot use manager0.New", signature},
		},
		{
			"a program",
			map[string]string{"main.go": "package main\n\nfunc main() {}\n"},
			[]string{"is a program, not an importable package"},
		},
		{
			"damaged module",
			map[string]string{"site.go": siteManager, "go.mod": "modul x\n"},
			[]string{"go.mod:1: unknown directive"},
		},
		{
			"module without name",
			map[string]string{"site.go": siteManager, "go.mod": "go 1.24\n"},
			[]string{"names no module"},
		},
		{
			"newer Go",
			map[string]string{"site.go": siteManager, "go.mod": "module example.com/site\n\ngo 1.99\n"},
			[]string{"requires go >= 1.99"},
		},
		{
			"internal package",
			map[string]string{"site.go": strings.ReplaceAll(siteManager, `"context"`,
				"\"context\"\n\n\t_ \"ironroot/internal/pause\"")},
			[]string{"use of internal package ironroot/internal/pause not allowed"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := files(t, tt.files)
			_, err := buildManagers(t, dir)
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range append(tt.want, dir) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want %q in it", err, want)
				}
			}
		})
	}
	if _, err := buildManagers(t, valid, valid); err == nil ||
		!strings.Contains(err.Error(), valid+": duplicate path") {
		t.Errorf("same directory twice: got %v", err)
	}
	b := &builder{Options: Options{Dir: testenv.Top(t), Managers: []string{valid}, Init: "ironroot/other"}}
	if _, err := b.init(t.Context()); err == nil || !strings.Contains(err.Error(), "ironroot/other") {
		t.Errorf("other init: got %v, want an error", err)
	}
}
