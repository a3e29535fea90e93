package bill

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"

	"ironroot/release/license"
	"ironroot/release/spdx"
)

// Module is a Go module that a program was built from.
type Module struct {
	Path, Version string
	Dir           string // "" = unknown
	Sum           string // as in go.sum, "h1:" and a hash in base64; "" = unknown
}

// Directories are the directories of modules.
type Directories struct {
	Cache  string            // Go's module cache
	Root   string            // GOROOT
	Others map[string]string // of modules that are not in the cache, by path
}

// standard is the name of the standard library as a module, as vulnerability databases use it.
const standard = "stdlib"

// ReadModules returns the modules of a program, as Go has stored them in it, and the standard library. more are modules
// that are not stored in it, as PATH VERSION.
func ReadModules(program []byte, more []string, dirs Directories) ([]Module, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("modules of the program: %w", err)
	}
	return modulesOf(info, more, dirs), nil
}

func modulesOf(info *debug.BuildInfo, more []string, dirs Directories) []Module {
	all := []Module{{Path: standard, Version: strings.TrimPrefix(info.GoVersion, "go"), Dir: dirs.Root}}
	add := func(path, version, sum string) {
		m := Module{Path: path, Version: version, Dir: dirs.Others[path], Sum: sum}
		if m.Dir == "" {
			m.Dir = moduleDir(dirs.Cache, m)
		}
		all = append(all, m)
	}
	if info.Main.Path != "" {
		add(info.Main.Path, info.Main.Version, "")
	}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		add(dep.Path, dep.Version, dep.Sum)
	}
	for _, line := range more {
		if fields := strings.Fields(line); len(fields) >= 2 {
			add(fields[len(fields)-2], fields[len(fields)-1], "") // the last two belong to a replacement
		}
	}
	return all
}

// moduleDir returns the directory of a module in Go's module cache, "" if it is not there.
func moduleDir(cache string, m Module) string {
	path, err := module.EscapePath(m.Path)
	if err != nil {
		return ""
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		return ""
	}
	dir := filepath.Join(cache, path+"@"+version)
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// AddModules adds modules to a document: the program with the ID program is linked with them.
func AddModules(d *spdx.Document, program string, modules []Module) error {
	for _, m := range modules {
		found := license.Found{}
		if m.Dir != "" {
			var err error
			if found, err = license.OfModule(m.Path, m.Dir); err != nil {
				return err
			}
		}
		for _, l := range found.Licenses {
			d.AddLicense(l)
		}
		version := m.Version
		if version == "(devel)" {
			version = ""
		}
		id := d.AddPackage(spdx.Package{
			Name: m.Path, Version: version, Purpose: "LIBRARY", Declared: found.Expression,
			DirHash: dirHash(m.Sum),
		}, "", spdx.URL("golang", strings.ToLower(m.Path), version))
		d.Relate(program, "STATIC_LINK", id)
	}
	return nil
}

// dirHash returns a sum of go.sum in hex, "" if it is unknown.
func dirHash(sum string) string {
	encoded, _ := strings.CutPrefix(sum, "h1:")
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(data)
}
