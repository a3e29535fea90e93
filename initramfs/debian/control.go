package debian

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"ironroot/internal/bounded"
)

// Limits of files in packages, in bytes.
const (
	maxSums      = 16 << 20
	maxCopyright = 4 << 20
)

// Control describes a package.
type Control struct {
	Name, Version, Arch string
	Source              string          // name of the source package
	SHA256              string          // of the package, in hex
	URL                 string          // in Debian's archive; "" = the lock file does not have the package
	Files               map[string]bool // regular files, without the leading "/"
}

// ReadControl describes a package in the cache.
func (a *Archive) ReadControl(deb string) (Control, error) {
	c := Control{Files: map[string]bool{}}
	err := walk(deb, "control.tar", func(h *tar.Header, r io.Reader) error {
		switch h.Name {
		case "control":
			text, err := bounded.ReadAll(r, maxControl)
			c.parse(string(text))
			return err
		case "md5sums":
			text, err := bounded.ReadAll(r, maxSums)
			for line := range strings.Lines(string(text)) {
				if _, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), "  "); found {
					c.Files[name] = true
				}
			}
			return err
		}
		return nil
	})
	if err == nil && (c.Name == "" || c.Version == "" || c.Arch == "") {
		err = errors.New("control file without name, version or architecture")
	}
	if err == nil {
		c.SHA256, err = sumFile(deb)
	}
	if err != nil {
		return Control{}, fmt.Errorf("read %s: %w", deb, err)
	}
	for _, locked := range a.o.Lock {
		if locked.SHA256 == c.SHA256 {
			c.URL = DefaultMirror + "/" + locked.Path
			if locked.Origin == originSecurity {
				c.URL = securityMirror(a.o.Suite, DefaultMirror) + "/" + locked.Path
			}
		}
	}
	return c, nil
}

// parse reads the fields of a control file.
func (c *Control) parse(text string) {
	for line := range strings.Lines(text) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch field {
		case "Package":
			c.Name = value
		case "Version":
			c.Version = value
		case "Architecture":
			c.Arch = value
		case "Source":
			c.Source, _, _ = strings.Cut(value, " ") // a version follows if it differs
		}
	}
	if c.Source == "" {
		c.Source = c.Name
	}
}

// Suite returns the release of the archive.
func (a *Archive) Suite() string { return a.o.Suite }

// Copyright returns the copyright file of a package in the cache. It stays in the cache, because finding it can require
// unpacking all of the package. tree is the directory that ExtractAll has unpacked the package to, "" = none.
func (a *Archive) Copyright(ctx context.Context, deb string, c Control, tree string) ([]byte, error) {
	name := path.Join("usr/share/doc", c.Name, "copyright")
	if tree != "" {
		if text, err := os.ReadFile(filepath.Join(tree, name)); err == nil {
			return text, nil
		}
	}
	cached := filepath.Join(a.o.CacheDir, "copyright", c.SHA256)
	if text, err := os.ReadFile(cached); err == nil {
		return text, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	a.say("reading the licences of %s", c.Name)
	var text []byte
	err := walk(deb, "data.tar", func(h *tar.Header, r io.Reader) (err error) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if h.Name == name && h.Typeflag == tar.TypeReg {
			text, err = bounded.ReadAll(r, maxCopyright)
			if err == nil {
				return errFound
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, fmt.Errorf("read %s: %w", deb, err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("read %s: no file %s", deb, name)
	}
	return text, writeCache(cached, text)
}

// errFound ends a walk.
var errFound = errors.New("found")
