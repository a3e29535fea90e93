// Package rofs implements io/fs for file systems that a program reads without mounting them: paths, descriptions of
// files, and limits that hold for any content of the medium.
package rofs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

const (
	maxListed = 64 << 20 // bytes of all directories that are listed
	maxCached = 4 << 20  // bytes of the directories that are kept in memory
	maxDepth  = 512      // elements of a path
)

// File describes a file or directory on a medium.
type File struct {
	Name  string
	Mode  fs.FileMode // Directory, Regular or Other
	Size  int64       // bytes
	Start int64       // the place of the content, in a unit of the file system
}

// The modes of files.
const (
	Directory = fs.ModeDir | 0o555
	Regular   = fs.FileMode(0o444)
	Other     = fs.ModeIrregular | 0o444 // neither: its content cannot be read
)

// Medium reads the directories and files of a file system.
type Medium interface {
	// Root returns the root directory, with the name "/".
	Root() File
	// List returns the files of a directory, sorted by name, and the number of bytes that it read. The names are
	// elements of paths.
	List(directory File) ([]File, int64, error)
	// Content returns a reader of a regular file. It fails if the medium has fewer bytes than the size of the file.
	Content(file File) io.Reader
}

// FS implements [fs.StatFS], [fs.ReadDirFS] and [fs.ReadFileFS]. It is safe for concurrent use if its medium is. After
// it has listed directories of 64 MiB, it fails: directories of a damaged file system can contain each other.
type FS struct {
	medium   Medium
	foldCase bool

	mu     sync.Mutex
	listed int64 // bytes
	cache  map[place]listing
	cached int64 // bytes
}

// place identifies a directory.
type place struct{ start, size int64 }

type listing struct {
	files []File
	bytes int64
}

// New returns the files of a medium. With foldCase, a name that a directory does not contain exactly is compared in
// upper case; of several files that are equal then, the first is opened.
func New(medium Medium, foldCase bool) *FS {
	return &FS{medium: medium, foldCase: foldCase, cache: map[place]listing{}}
}

// Open opens a file or directory.
func (f *FS) Open(name string) (fs.File, error) {
	file, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	switch {
	case file.Mode.IsDir():
		entries, err := f.entries("open", name, file)
		if err != nil {
			return nil, err
		}
		return &openDirectory{info{file}, name, entries}, nil
	case file.Mode.IsRegular():
		return &openFile{info{file}, name, f.medium.Content(file)}, nil
	}
	return &openFile{info{file}, name, nil}, nil
}

// Stat describes a file or directory. Its time is zero.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	file, err := f.find("stat", name)
	if err != nil {
		return nil, err
	}
	return info{file}, nil
}

// ReadDir returns a directory's entries, sorted by name.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	directory, err := f.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !directory.Mode.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	return f.entries("readdir", name, directory)
}

// ReadFile returns the content of a regular file. It allocates memory only for data that the medium has.
func (f *FS) ReadFile(name string) ([]byte, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// find returns the file with a path.
func (f *FS) find(op, name string) (File, error) {
	fail := func(err error) (File, error) { return File{}, &fs.PathError{Op: op, Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	at := f.medium.Root()
	if name == "." {
		return at, nil
	}
	elements := strings.Split(name, "/")
	if len(elements) > maxDepth {
		return fail(fmt.Errorf("more than %d directories within each other", maxDepth))
	}
	for _, element := range elements {
		if !at.Mode.IsDir() {
			return fail(fs.ErrNotExist)
		}
		files, err := f.list(at, false)
		if err != nil {
			return fail(err)
		}
		i := slices.IndexFunc(files, func(file File) bool { return file.Name == element })
		if i < 0 && f.foldCase {
			upper := strings.ToUpper(element)
			i = slices.IndexFunc(files, func(file File) bool { return strings.ToUpper(file.Name) == upper })
		}
		if i < 0 {
			return fail(fs.ErrNotExist)
		}
		at = files[i]
	}
	return at, nil
}

// entries lists a directory for a caller.
func (f *FS) entries(op, name string, directory File) ([]fs.DirEntry, error) {
	files, err := f.list(directory, true)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	entries := make([]fs.DirEntry, len(files))
	for i, file := range files {
		entries[i] = info{file}
	}
	return entries, nil
}

// list lists a directory, and counts its bytes unless it is in memory and was not requested by the caller.
func (f *FS) list(directory File, isRequested bool) ([]File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := place{directory.Start, directory.Size}
	l, isCached := f.cache[key]
	if !isCached {
		var err error
		if l.files, l.bytes, err = f.medium.List(directory); err != nil {
			return nil, err
		}
	}
	if !isCached || isRequested {
		if f.listed += l.bytes; f.listed > maxListed {
			return nil, fmt.Errorf("the directories have more than %d bytes", maxListed)
		}
	}
	if !isCached {
		if f.cached += l.bytes; f.cached > maxCached {
			clear(f.cache)
			f.cached = l.bytes
		}
		f.cache[key] = l
	}
	return l.files, nil
}
