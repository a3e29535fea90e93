package rofs

import (
	"errors"
	"io"
	"io/fs"
	"time"
)

// info is a [fs.FileInfo] and a [fs.DirEntry].
type info struct{ file File }

func (i info) Size() int64                { return i.file.Size }
func (i info) Mode() fs.FileMode          { return i.file.Mode }
func (i info) Type() fs.FileMode          { return i.file.Mode.Type() }
func (i info) IsDir() bool                { return i.file.Mode.IsDir() }
func (i info) ModTime() time.Time         { return time.Time{} }
func (i info) Sys() any                   { return nil }
func (i info) Info() (fs.FileInfo, error) { return i, nil }
func (i info) String() string             { return fs.FormatDirEntry(i) }

// Name returns the name, which is "." for the root directory.
func (i info) Name() string {
	if i.file.Name == "/" {
		return "."
	}
	return i.file.Name
}

// openFile is an open file that is no directory.
type openFile struct {
	info    info
	path    string
	content io.Reader // nil if it cannot be read
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

func (f *openFile) Read(p []byte) (int, error) {
	if f.content == nil {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: errors.New("not a regular file")}
	}
	n, err := f.content.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // an error of the medium may wrap io.EOF
		err = &fs.PathError{Op: "read", Path: f.path, Err: err}
	}
	return n, err
}

// openDirectory is an open directory.
type openDirectory struct {
	info    info
	path    string
	entries []fs.DirEntry // not returned yet
}

func (d *openDirectory) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDirectory) Close() error               { return nil }

func (d *openDirectory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.path, Err: errors.New("is a directory")}
}

// ReadDir returns the next n entries, or all that are left if n is not positive.
func (d *openDirectory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(d.entries) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.entries) {
		n = len(d.entries)
	}
	list := d.entries[:n:n]
	d.entries = d.entries[n:]
	return list, nil
}
