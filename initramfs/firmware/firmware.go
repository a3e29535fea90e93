package firmware

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the lists
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/initramfs/debian"
)

// Packages are the Debian packages with firmware for adapters of servers. They do not depend on the architecture.
var Packages = []string{
	"firmware-bnx2", "firmware-bnx2x", "firmware-cavium", "firmware-intel-misc", "firmware-linux-free",
	"firmware-misc-nonfree", "firmware-myricom", "firmware-netronome", "firmware-netxen", "firmware-qlogic",
	"firmware-realtek",
}

//go:embed computed.txt
var computed string

//go:embed omitted.txt
var omitted string

// Requests returns the names of the files that a module requests: the declared ones and those that its driver computes.
func Requests(module string, declared []string) []string {
	all := slices.Clone(declared)
	for line := range strings.Lines(computed) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == module {
			all = append(all, fields[1:]...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Omission is a set of files that images lack although modules request them.
type Omission struct{ Pattern, Reason string }

// Omissions returns the reviewed list of omissions.
func Omissions() []Omission {
	var all []Omission
	for line := range strings.Lines(omitted) {
		pattern, reason, found := strings.Cut(strings.TrimSpace(line), " ")
		if found && pattern != "#" {
			all = append(all, Omission{pattern, strings.TrimSpace(reason)})
		}
	}
	return all
}

// Matches reports whether the omission covers a file.
func (o Omission) Matches(name string) bool {
	matched, err := path.Match(o.Pattern, name)
	return err == nil && matched
}

// Omitted reports whether an omission covers a file. Images contain such a file only if the operator provides it.
func Omitted(name string) bool {
	return slices.ContainsFunc(Omissions(), func(o Omission) bool { return o.Matches(name) })
}

// File is a file below /lib/firmware, or a symbolic link there.
type File struct {
	Name   string // below the directory
	Path   string // on this machine; "" = a link
	Target string // of a link, below the directory
}

// Tree is a list of directories with firmware. A file is taken from the first directory that contains it.
type Tree []string

// Find returns the files of a request: the file, or a link and its target. A request with wildcards returns every file
// that matches. The list is empty if there are none.
func (t Tree) Find(request string) ([]File, error) {
	request = strings.TrimPrefix(path.Clean("/"+request), "/")
	for _, dir := range t {
		matches := []string{request}
		if strings.ContainsAny(request, "*?[") {
			found, err := fs.Glob(os.DirFS(dir), request)
			if err != nil {
				return nil, fmt.Errorf("firmware %s: %w", request, err)
			}
			matches = found
		}
		var files []File
		for _, name := range matches {
			found, err := find(dir, name)
			if err != nil {
				return nil, fmt.Errorf("firmware %s: %w", name, err)
			}
			files = append(files, found...)
		}
		if len(files) > 0 {
			return files, nil
		}
	}
	return nil, nil
}

// find returns a file of one directory. A link is resolved to its final target.
func find(dir, name string) ([]File, error) {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(filepath.Join(root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	target, err := filepath.Rel(root, real)
	if err != nil {
		return nil, err
	}
	if target == name {
		return []File{{Name: name, Path: real}}, nil
	}
	if strings.HasPrefix(target, "../") { // a link of the operator out of the directory
		return []File{{Name: name, Path: real}}, nil
	}
	return []File{{Name: target, Path: real}, {Name: name, Target: target}}, nil
}

// Fetched are unpacked packages.
type Fetched struct {
	Debs []string
	Root string // directory that they were unpacked to
	Dir  string // directory of the firmware, below Root
}

// Fetch fetches Packages and unpacks them below cacheDir.
func Fetch(ctx context.Context, archive *debian.Archive, cacheDir, arch string) (Fetched, error) {
	var debs []string
	key := sha256.New()
	for _, pkg := range Packages {
		deb, err := archive.Fetch(ctx, pkg+":"+arch)
		if err != nil {
			return Fetched{}, fmt.Errorf("firmware: %w", err)
		}
		debs = append(debs, deb)
		_, _ = key.Write([]byte(filepath.Base(deb) + "\n"))
	}
	dir := filepath.Join(cacheDir, "firmware", hex.EncodeToString(key.Sum(nil)[:8]))
	err := debian.ExtractAll(ctx, debs, dir, func(name string) bool {
		_, below, found := strings.Cut(name, "lib/firmware/")
		return found && below != ""
	}, nil)
	if err != nil {
		return Fetched{}, fmt.Errorf("firmware: %w", err)
	}
	for _, below := range []string{"usr/lib/firmware", "lib/firmware"} {
		if _, err := os.Stat(filepath.Join(dir, below)); err == nil {
			return Fetched{debs, dir, filepath.Join(dir, below)}, nil
		}
	}
	return Fetched{}, fmt.Errorf("firmware: no files in %s", strings.Join(Packages, ", "))
}
