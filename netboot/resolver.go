package netboot

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

// resolver writes the resolver's file (resolv.conf(5)) from the configurations of all links.
type resolver struct {
	path string

	mu   sync.Mutex
	last string
}

// write replaces the file in one step, so that no reader sees half of it. Until the first name server is known the
// file stays what it was: whoever wrote it knew more.
//
// The configurations are asked for under the lock, so that of two links that get theirs at once the later writer
// knows both.
func (r *resolver) write(configs func() []linkConfig) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	content := resolvConf(configs())
	if content == r.last {
		return nil
	}
	if err := replaceFile(r.path, content); err != nil {
		return fmt.Errorf("write name servers: %w", err)
	}
	r.last = content
	return nil
}

// resolvConf lists the first name server of every link, then every second one, and so on: a resolver asks three at
// most, and so asks several links rather than one that may lead nowhere.
func resolvConf(configs []linkConfig) string {
	var servers []netip.Addr
	var search []string
	for rank := 0; ; rank++ {
		more := false
		for _, c := range configs {
			if rank < len(c.dns) {
				more = true
				if !slices.Contains(servers, c.dns[rank]) {
					servers = append(servers, c.dns[rank])
				}
			}
		}
		if !more {
			break
		}
	}
	for _, c := range configs {
		for _, name := range c.search {
			if !slices.Contains(search, name) {
				search = append(search, name)
			}
		}
	}
	if len(servers) == 0 {
		return ""
	}
	var text strings.Builder
	for _, server := range servers {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	if len(search) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(search, " "))
	}
	return text.String()
}

func replaceFile(path, content string) (err error) {
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
