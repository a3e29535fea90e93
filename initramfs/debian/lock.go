package debian

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // for the lock file
	"fmt"
	"slices"
	"strings"
	"sync"
)

// LockPath is the path of the lock file in this repository.
const LockPath = "initramfs/debian/packages.lock"

//go:embed packages.lock
var packagesLock []byte

// Pinned returns the lock file of this repository.
var Pinned = sync.OnceValue(func() Lock {
	lock, err := ParseLock(packagesLock)
	if err != nil {
		panic(err) // the file is embedded, and cmd/ironroot.TestLockFile parses it
	}
	return lock
})

// Lock pins versions of packages.
type Lock []Locked

// Locked is a pinned version of a package.
type Locked struct {
	Suite string
	Package
}

const lockHeader = `# Versions of Debian's packages that images are built from. "make lock" writes this file.
# suite package architecture version sha256 archive path
`

// ParseLock parses a lock file, which has one line for each package with fields separated by blanks.
func ParseLock(text []byte) (Lock, error) {
	lock := Lock{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 7 {
			return nil, fmt.Errorf("lock file, line %d: got %d fields, want 7", number, len(f))
		}
		p := Locked{f[0], Package{Name: f[1], Arch: f[2], Version: f[3], SHA256: f[4], Origin: f[5], Path: f[6]}}
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("lock file, line %d: %w", number, err)
		}
		if p.Origin != originMain && p.Origin != originSecurity {
			return nil, fmt.Errorf("lock file, line %d: got archive %q, want %s or %s",
				number, p.Origin, originMain, originSecurity)
		}
		lock = append(lock, p)
	}
	return lock, nil
}

// String returns the content of the lock file.
func (l Lock) String() string {
	var out bytes.Buffer
	out.WriteString(lockHeader)
	for _, p := range l {
		fmt.Fprintln(&out, p.Suite, p.Name, p.Arch, p.Version, p.SHA256, p.Origin, p.Path)
	}
	return out.String()
}

// find returns the pinned version of a package for an architecture.
func (l Lock) find(suite, name, arch string) (Package, bool) {
	for _, p := range l {
		if p.Suite == suite && p.Name == name && (p.Arch == arch || p.Arch == "all") {
			return p.Package, true
		}
	}
	return Package{}, false
}

// Update returns a lock with the newest versions of packages, each NAME:ARCH, and of the dependencies that follow
// accepts. It keeps the pinned versions of other suites and drops all other ones of this suite.
func (a *Archive) Update(ctx context.Context, packages []string, follow func(name string) bool) (Lock, error) {
	lock := Lock{}
	for _, p := range a.o.Lock {
		if p.Suite != a.o.Suite {
			lock = append(lock, p)
		}
	}
	var add func(name, arch string) error
	add = func(name, arch string) error {
		p, err := a.Newest(ctx, name, arch)
		if err != nil {
			return err
		}
		depends := p.Depends
		p.Depends = nil
		// Packages that do not depend on the architecture are in the index of each one.
		for _, have := range lock {
			if have.Suite == a.o.Suite && have.Name == p.Name && have.Arch == p.Arch {
				return nil
			}
		}
		lock = append(lock, Locked{a.o.Suite, p})
		for _, next := range depends {
			if follow(next) {
				if err := add(next, arch); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, pkg := range packages {
		name, arch := splitName(pkg)
		if err := add(name, arch); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
	}
	slices.SortFunc(lock, func(x, y Locked) int {
		return cmp.Or(cmp.Compare(x.Suite, y.Suite), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Arch, y.Arch))
	})
	return lock, nil
}
