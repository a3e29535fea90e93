package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	version "github.com/knqyf263/go-deb-version"
)

// Defaults of Options.
const (
	DefaultSuite   = "trixie" // Debian 13, the current stable release
	DefaultMirror  = "https://deb.debian.org/debian"
	DefaultKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// NoMirror as Options.Security omits security updates.
const NoMirror = "none"

// ErrGone means that the archive does not have a package, or not in the requested version.
var ErrGone = errors.New("not in the archive")

// Options describe an archive. The zero value is Debian's current stable release.
type Options struct {
	Suite    string    // name of the release; "" = DefaultSuite
	Mirror   string    // URL of the archive: http, https or file; "" = DefaultMirror
	Security string    // of the security archive, or NoMirror; "" = Mirror with "debian-security" in place of "debian"
	Keyring  string    // OpenPGP keys that sign the indexes; "" = DefaultKeyring
	CacheDir string    // directory of downloaded packages and indexes; "" = ironroot in the user's cache directory
	Lock     Lock      // pinned versions; nil = the lock file of this repository
	Locked   bool      // a package that is not pinned, or no longer there in its pinned version, is an error
	Offline  bool      // only the cache is read
	Progress io.Writer // receives one line for each message; nil discards them
}

// Archive is a Debian archive. It is safe for concurrent use.
type Archive struct {
	o      Options
	client *http.Client

	mu    sync.Mutex
	index map[string]map[string]Package // by architecture and name, the newest version of each
}

// Open returns the archive that o describes, without accessing it.
func Open(o Options) (*Archive, error) {
	if o.Suite == "" {
		o.Suite = DefaultSuite
	}
	if o.Mirror == "" {
		o.Mirror = DefaultMirror
	}
	if o.Keyring == "" {
		o.Keyring = DefaultKeyring
	}
	if o.Lock == nil {
		o.Lock = Pinned()
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.CacheDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("debian archive: %w", err)
		}
		o.CacheDir = filepath.Join(cache, "ironroot")
	}
	if strings.ContainsAny(o.Suite, "/ ") || strings.HasPrefix(o.Suite, ".") {
		return nil, fmt.Errorf("debian archive: suite %q is not a name", o.Suite)
	}
	if o.Security == "" {
		o.Security = securityMirror(o.Suite, o.Mirror)
	}
	for _, mirror := range []string{o.Mirror, o.Security} {
		if err := checkMirror(mirror); err != nil {
			return nil, err
		}
	}
	return &Archive{o: o, client: newClient(), index: map[string]map[string]Package{}}, nil
}

// securityMirror derives the URL of the security archive from the archive's: Debian's mirrors and snapshots contain
// both in one directory. Suites that are not releases have no security archive.
func securityMirror(suite, mirror string) string {
	if slices.Contains([]string{"sid", "unstable", "experimental"}, suite) {
		return NoMirror
	}
	parts := strings.Split(mirror, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i] == "debian" {
			parts[i] = "debian-security"
			return strings.Join(parts, "/")
		}
	}
	return NoMirror
}

func checkMirror(mirror string) error {
	if mirror == NoMirror {
		return nil
	}
	u, err := url.Parse(mirror)
	if err != nil {
		return fmt.Errorf("debian archive: mirror: %w", err)
	}
	if !slices.Contains([]string{"http", "https", "file"}, u.Scheme) {
		return fmt.Errorf("debian archive: mirror %s has the scheme %q, want http, https or file",
			u.Redacted(), u.Scheme)
	}
	return nil
}

// Fetch downloads a package into the cache and returns the path of the .deb. NAME:ARCH names a package of another
// architecture than this machine's.
func (a *Archive) Fetch(ctx context.Context, pkg string) (string, error) {
	debs, err := a.FetchAll(ctx, pkg, func(string) bool { return false })
	if err != nil {
		return "", err
	}
	return debs[0], nil
}

// FetchAll downloads a package and, recursively, the dependencies that follow accepts. It returns their paths, the
// package itself first. Either all versions are pinned, or all are the newest.
func (a *Archive) FetchAll(ctx context.Context, pkg string, follow func(name string) bool) ([]string, error) {
	name, arch := splitName(pkg)
	debs, err := a.fetchTree(ctx, name, follow, func(ctx context.Context, name string) (string, error) {
		return a.fetchPinned(ctx, name, arch)
	})
	if !errors.Is(err, ErrGone) {
		return debs, err
	}
	if a.o.Locked {
		return nil, fmt.Errorf("%w (--locked)", err)
	}
	a.say("%v: taking the newest version", err)
	return a.fetchTree(ctx, name, follow, func(ctx context.Context, name string) (string, error) {
		return a.fetchNewest(ctx, name, arch)
	})
}

func splitName(pkg string) (name, arch string) {
	name, arch, found := strings.Cut(pkg, ":")
	if !found {
		arch = runtime.GOARCH // Debian and Go use the same names for the architectures that both have
	}
	return name, arch
}

// fetchTree fetches a package and the dependencies that follow accepts.
func (a *Archive) fetchTree(ctx context.Context, name string, follow func(string) bool,
	fetch func(ctx context.Context, name string) (string, error),
) ([]string, error) {
	queue, seen, debs := []string{name}, map[string]bool{name: true}, []string(nil)
	for len(queue) > 0 {
		deb, err := fetch(ctx, queue[0])
		if err != nil {
			return nil, err
		}
		queue, debs = queue[1:], append(debs, deb)
		depends, err := Depends(deb)
		if err != nil {
			return nil, err
		}
		for _, next := range depends {
			if !seen[next] && follow(next) {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return debs, nil
}

// fetchPinned returns the file of the pinned version. The error wraps ErrGone if there is no such version.
func (a *Archive) fetchPinned(ctx context.Context, name, arch string) (string, error) {
	p, ok := a.o.Lock.find(a.o.Suite, name, arch)
	if !ok {
		return "", fmt.Errorf("package %s:%s of suite %s: not in the lock file: %w", name, arch, a.o.Suite, ErrGone)
	}
	deb, err := a.download(ctx, p)
	if err != nil {
		return "", fmt.Errorf("package %s:%s, version %s of the lock file: %w", name, arch, p.Version, err)
	}
	return deb, nil
}

// fetchNewest returns the file of the newest version; offline, of the newest one in the cache.
func (a *Archive) fetchNewest(ctx context.Context, name, arch string) (string, error) {
	if a.o.Offline {
		if deb, ok := a.newestCached(name, arch); ok {
			return deb, nil
		}
		return "", fmt.Errorf("package %s:%s of suite %s: no version in %s (--offline): %w",
			name, arch, a.o.Suite, a.packageDir(), ErrGone)
	}
	p, err := a.Newest(ctx, name, arch)
	if err != nil {
		return "", err
	}
	deb, err := a.download(ctx, p)
	if err != nil {
		return "", fmt.Errorf("package %s:%s, version %s: %w", name, arch, p.Version, err)
	}
	return deb, nil
}

// Newest returns the newest version of a package, from the indexes of the suite and of its security updates.
func (a *Archive) Newest(ctx context.Context, name, arch string) (Package, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.index[arch] == nil {
		index, err := a.readIndexes(ctx, arch)
		if err != nil {
			return Package{}, err
		}
		a.index[arch] = index
	}
	p, ok := a.index[arch][name]
	if !ok {
		return Package{}, fmt.Errorf("package %s:%s: suite %s of %s does not have it: %w",
			name, arch, a.o.Suite, a.o.Mirror, ErrGone)
	}
	return p, nil
}

func (a *Archive) packageDir() string { return filepath.Join(a.o.CacheDir, "packages", a.o.Suite) }

// download returns the path of p in the cache. The content there always has the SHA-256 of p.
func (a *Archive) download(ctx context.Context, p Package) (string, error) {
	path := filepath.Join(a.packageDir(), filepath.Base(p.Path))
	if sum, err := sumFile(path); err == nil && sum == p.SHA256 {
		return path, nil
	}
	if a.o.Offline {
		return "", fmt.Errorf("no file %s with SHA-256 %s (--offline): %w", path, p.SHA256, ErrGone)
	}
	mirror := a.mirror(p.Origin)
	if mirror == NoMirror {
		return "", fmt.Errorf("comes from %s, which has no mirror here: %w", p.Origin, ErrGone)
	}
	a.say("downloading %s", filepath.Base(p.Path))
	return path, a.save(ctx, mirror+"/"+p.Path, path, p.SHA256)
}

// mirror returns the URL of one of the two archives.
func (a *Archive) mirror(origin string) string {
	if origin == originSecurity {
		return strings.TrimRight(a.o.Security, "/")
	}
	return strings.TrimRight(a.o.Mirror, "/")
}

// newestCached returns the path of the newest version of a package in the cache, and whether there is one.
func (a *Archive) newestCached(name, arch string) (string, bool) {
	var newest version.Version
	path := ""
	for _, arch := range []string{arch, "all"} {
		found, err := filepath.Glob(filepath.Join(a.packageDir(), name+"_*_"+arch+".deb"))
		if err != nil {
			return "", false // only a malformed pattern is an error
		}
		for _, file := range found {
			v, err := version.NewVersion(strings.Split(filepath.Base(file), "_")[1])
			if err == nil && (path == "" || v.GreaterThan(newest)) {
				path, newest = file, v
			}
		}
	}
	return path, path != ""
}

// say writes a message.
func (a *Archive) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.o.Progress, format+"\n", args...)
}
