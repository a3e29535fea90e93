package server

import (
	"context"
	"errors"
	"fmt"
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
	Log     *slog.Logger   // may be nil
	Listen  netip.AddrPort // port 0 means any free port
	Root    string         // only regular files below this directory are served; links cannot lead outside
	Request func(Request)  // called after every request, possibly concurrently; may be nil
}

// Request describes a request for a file by TFTP or HTTP.
type Request struct {
	Protocol string // "tftp" or "http"
	Client   string // address and port
	Method   string // HTTP method; "" for TFTP
	Path     string
	Range    string // HTTP Range header
	Status   int    // HTTP status; for TFTP 200, 404 or 500
	Bytes    int64  // bytes of the body that were sent
	Duration time.Duration
	Err      error
}

// files serves requests from a directory.
type files struct {
	root    *os.Root
	log     *slog.Logger
	request func(Request)
}

func openFiles(config FilesConfig) (*files, error) {
	root, err := os.OpenRoot(config.Root)
	if err != nil {
		return nil, fmt.Errorf("directory to serve: %w", err)
	}
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &files{root: root, log: log, request: config.Request}, nil
}

// open opens a regular file by the path of a request. All other files do not exist for it.
func (f *files) open(name string) (*os.File, fs.FileInfo, error) {
	name = strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(name, "\\", "/")), "/")
	if name == "" {
		return nil, nil, fs.ErrNotExist
	}
	// Without O_NONBLOCK, opening a named pipe would block until its other end is opened.
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// done logs a request and calls the callback.
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
	if f.request != nil {
		f.request(r)
	}
}
