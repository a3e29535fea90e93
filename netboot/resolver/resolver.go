// Package resolver writes the resolver's file, resolv.conf(5), from the name servers and search domains of several
// links.
package resolver

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Limits of what one server or router may add to the file.
const (
	MaxServers = 8
	MaxSearch  = 8
)

// Names are the name servers and search domains from one source, the preferred ones first.
type Names struct {
	Servers []netip.Addr
	Search  []string
}

// File is the resolver's file. Its methods may be called concurrently.
type File struct {
	path string

	mu   sync.Mutex
	last string
}

// NewFile returns the file with the given path. Nothing is written yet.
func NewFile(path string) *File { return &File{path: path} }

// Write replaces the file by the names of all sources, the preferred source first. A reader sees either the old or the
// new content. As long as no source has a name server, the file stays unchanged, and its directory need not exist.
//
// Write calls sources while it holds a lock: of two concurrent calls, the one that writes last has also asked last.
func (f *File) Write(sources func() []Names) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	content := Format(sources())
	if content == f.last {
		return nil
	}
	if err := replace(f.path, content); err != nil {
		return fmt.Errorf("write name servers: %w", err)
	}
	f.last = content
	return nil
}

// Format returns the content of the file, which is empty without name servers. It lists the first name server of every
// source, then every second one, and so on: the C library asks the first three only, which should belong to several
// links, because the servers of one link may be unreachable.
func Format(sources []Names) string {
	servers := interleave(sources)
	if len(servers) == 0 {
		return ""
	}
	var text strings.Builder
	for _, server := range servers {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	var search []string
	for _, source := range sources {
		for _, name := range source.Search {
			if !slices.Contains(search, name) {
				search = append(search, name)
			}
		}
	}
	if len(search) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(search, " "))
	}
	return text.String()
}

// interleave returns the name servers of all sources without duplicates, servers of the lowest rank first.
func interleave(sources []Names) []netip.Addr {
	var servers []netip.Addr
	for rank := 0; ; rank++ {
		more := false
		for _, source := range sources {
			if rank >= len(source.Servers) {
				continue
			}
			more = true
			if server := source.Servers[rank]; !slices.Contains(servers, server) {
				servers = append(servers, server)
			}
		}
		if !more {
			return servers
		}
	}
}

// IsDomainName reports whether name is a domain name as hosts have them (RFC 1123, section 2.1; underscores occur in
// practice). Other text must not reach the file, where it could add lines.
func IsDomainName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// replace writes a temporary file next to path and renames it.
func replace(path, content string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".resolv-*")
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			f, err = os.CreateTemp(filepath.Dir(path), ".resolv-*")
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
