package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// FilesConfig describes a file server.
type FilesConfig struct {
	Log    *slog.Logger   // may be nil
	Listen netip.AddrPort // port 0 means any free port
	// Interface, if not "", restricts the server to requests that arrive on this interface. Requests of this machine do
	// not. Otherwise the server accepts requests to the address of Listen that arrive on any interface.
	Interface string
	Root      string // only regular files below this directory are served; links cannot lead outside
	// Source serves other files than a directory's. Root must be "". It is used concurrently.
	Source   Source
	Requests Requests // may be nil
}

// Requests receives the requests of a server after their end.
type Requests interface {
	// Done is called after every request, possibly concurrently.
	Done(request Request)
}

// Source contains the files of a server.
type Source interface {
	// Open opens a file by the path of a request, which is clean and has no leading slash. The error of other paths is
	// fs.ErrNotExist.
	Open(path string) (*File, error)
}

// File is an open file of a source.
type File struct {
	io.ReadSeekCloser
	Size     int64 // bytes
	Modified time.Time
	Tag      string // changes with the content; a strong entity tag without its quotes
}

// Request describes a request for a file by TFTP or HTTP.
type Request struct {
	Protocol string // "tftp" or "http"
	Client   string // address and port
	Method   string // HTTP method; "" for TFTP
	Path     string
	Range    string // HTTP Range header
	Status   int    // HTTP status; for TFTP 200, 404, 500, or 503 because of a limit
	Bytes    int64  // bytes of the body that were sent
	Duration time.Duration
	Err      error
}

// files serves requests from a source.
type files struct {
	source   Source
	root     *os.Root // of the source, if it is a directory
	log      *slog.Logger
	requests Requests // may be nil
}

func openFiles(config FilesConfig) (*files, error) {
	f := &files{source: config.Source, log: config.Log, requests: config.Requests}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.source != nil {
		return f, nil
	}
	root, err := os.OpenRoot(config.Root)
	if err != nil {
		return nil, fmt.Errorf("directory to serve: %w", err)
	}
	f.source, f.root = directorySource{root}, root
	return f, nil
}

func (f *files) close() error {
	if f.root == nil {
		return nil
	}
	return f.root.Close()
}

// open opens a file by the path of a request.
func (f *files) open(name string) (*File, error) {
	name = strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(name, "\\", "/")), "/")
	if name == "" {
		return nil, fs.ErrNotExist
	}
	return f.source.Open(name)
}

// directorySource is a source with the regular files of a directory. All other files do not exist for it.
type directorySource struct{ root *os.Root }

// Open opens a regular file.
func (d directorySource) Open(name string) (*File, error) {
	// Without O_NONBLOCK, opening a named pipe would block until its other end is opened.
	file, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	opened, err := Opened(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return opened, nil
}

// Opened returns an open file of the file system as one of a source. Other files than regular ones do not exist for it.
func Opened(file *os.File) (*File, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	var inode uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	return &File{
		ReadSeekCloser: file, Size: info.Size(), Modified: info.ModTime(),
		// The file has another tag after it was replaced or written, so that clients can combine ranges of equal tags.
		Tag: fmt.Sprintf("%x-%x-%x", inode, info.Size(), info.ModTime().UnixNano()),
	}, nil
}

// done logs a request and passes it on.
func (f *files) done(r Request) {
	level := slog.LevelInfo
	if r.Status >= 400 || r.Err != nil {
		level = slog.LevelWarn
	}
	args := []any{
		"client", r.Client, "path", r.Path, "status", r.Status, "bytes", r.Bytes,
		"duration", r.Duration.Round(time.Millisecond),
	}
	if r.Err != nil {
		args = append(args, "err", r.Err)
	}
	f.log.Log(context.Background(), level, r.Protocol, args...)
	if f.requests != nil {
		f.requests.Done(r)
	}
}
