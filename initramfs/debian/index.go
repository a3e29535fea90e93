package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	version "github.com/knqyf263/go-deb-version"
	"github.com/ulikunitz/xz"

	"ironroot/internal/bounded"
)

// Limits of downloaded files, in bytes.
const (
	maxRelease = 16 << 20
	maxIndex   = 256 << 20 // uncompressed; the one of Debian 13 has 57 MB
)

// Values of Package.Origin.
const (
	originMain     = "debian"
	originSecurity = "debian-security"
)

// components of the archive whose packages are used.
var components = []string{"main", "non-free-firmware"}

// Package is a version of a package in the archive.
type Package struct {
	Name, Arch, Version string
	SHA256              string   // in hex
	Origin              string   // "debian" or "debian-security"
	Path                string   // below the URL of the archive
	Depends             []string // names, of alternatives the first
}

// readIndexes returns the newest version of each package of the suite and of its security updates.
func (a *Archive) readIndexes(ctx context.Context, arch string) (map[string]Package, error) {
	newest := map[string]Package{}
	for _, source := range []struct{ origin, suite string }{
		{originMain, a.o.Suite}, {originSecurity, a.o.Suite + "-security"},
	} {
		mirror := a.mirror(source.origin)
		if mirror == NoMirror {
			continue
		}
		packages, err := a.readSuite(ctx, mirror, source.suite, arch)
		if err != nil {
			if source.origin == originSecurity && errors.Is(err, ErrGone) {
				err = fmt.Errorf("%w\n--security-mirror names the archive of security updates, or is %q", err, NoMirror)
			}
			return nil, fmt.Errorf("index of suite %s: %w", source.suite, err)
		}
		for _, p := range packages {
			p.Origin = source.origin
			if have, ok := newest[p.Name]; !ok || newer(p.Version, have.Version) {
				newest[p.Name] = p
			}
		}
	}
	return newest, nil
}

// newer reports whether version a is greater than b. An invalid version is less than any other.
func newer(a, b string) bool {
	x, err := version.NewVersion(a)
	if err != nil {
		return false
	}
	y, err := version.NewVersion(b)
	return err != nil || x.GreaterThan(y)
}

// readSuite returns the packages of one suite.
func (a *Archive) readSuite(ctx context.Context, mirror, suite, arch string) ([]Package, error) {
	a.say("reading the index of %s", suite)
	signed, err := a.get(ctx, mirror+"/dists/"+suite+"/InRelease", maxRelease)
	if err != nil {
		return nil, err
	}
	text, err := a.verify(signed)
	if err != nil {
		return nil, fmt.Errorf("%s/dists/%s/InRelease: %w", mirror, suite, err)
	}
	release := parseRelease(string(text))
	if release.codename != suite && release.suite != suite {
		return nil, fmt.Errorf("%s/dists/%s/InRelease: is of suite %q (%q), want %q",
			mirror, suite, release.suite, release.codename, suite)
	}
	if !release.validUntil.IsZero() && time.Now().After(release.validUntil) {
		a.say("the index of %s expired on %s: newer versions may exist",
			suite, release.validUntil.Format(time.DateOnly))
	}
	var all []Package
	for _, component := range components {
		name := component + "/binary-" + arch + "/Packages"
		sum, ok := release.sums[name]
		if !ok {
			if component == components[0] {
				return nil, fmt.Errorf("%s/dists/%s has no %s: %w", mirror, suite, name, ErrGone)
			}
			continue // older suites have fewer components
		}
		index, err := a.readIndex(ctx, mirror+"/dists/"+suite, name, sum, release.sums[name+".xz"])
		if err != nil {
			return nil, err
		}
		all = append(all, parsePackages(string(index))...)
	}
	return all, nil
}

// readIndex returns the file Packages that has the SHA-256 sum. It stays in the cache.
func (a *Archive) readIndex(ctx context.Context, dists, name, sum, packedSum string) ([]byte, error) {
	cached := filepath.Join(a.o.CacheDir, "indexes", sum)
	if data, err := os.ReadFile(cached); err == nil && sumOf(data) == sum {
		return data, nil
	}
	// By hash if possible: while the mirror is being updated, the file under its name may be of another version than
	// InRelease.
	packed, err := a.get(ctx, dists+"/"+path.Dir(name)+"/by-hash/SHA256/"+packedSum, maxIndex)
	if errors.Is(err, ErrGone) {
		packed, err = a.get(ctx, dists+"/"+name+".xz", maxIndex)
	}
	if err != nil {
		return nil, err
	}
	if got := sumOf(packed); got != packedSum {
		return nil, fmt.Errorf("%s/%s.xz: got SHA-256 %s, want %s", dists, name, got, packedSum)
	}
	reader, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s/%s.xz: %w", dists, name, err)
	}
	data, err := bounded.ReadAll(reader, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("%s/%s.xz: %w", dists, name, err)
	}
	if got := sumOf(data); got != sum {
		return nil, fmt.Errorf("%s/%s: got SHA-256 %s, want %s", dists, name, got, sum)
	}
	return data, writeCache(cached, data)
}

// verify returns the signed text of an InRelease file.
func (a *Archive) verify(signed []byte) ([]byte, error) {
	f, err := os.Open(a.o.Keyring)
	if err != nil {
		return nil, fmt.Errorf("keyring: %w (Debian's and Ubuntu's package debian-archive-keyring holds it)", err)
	}
	defer f.Close() //nolint:errcheck // only read
	keys, err := openpgp.ReadKeyRing(f)
	if err != nil {
		return nil, fmt.Errorf("keyring %s: %w", a.o.Keyring, err)
	}
	block, _ := clearsign.Decode(signed)
	if block == nil {
		return nil, errors.New("not a signed text")
	}
	if _, err := block.VerifySignature(keys, nil); err != nil {
		return nil, fmt.Errorf("signature by a key of %s: %w", a.o.Keyring, err)
	}
	return block.Plaintext, nil
}

// release contains the fields of a file Release that are used.
type release struct {
	suite, codename string
	validUntil      time.Time
	sums            map[string]string // SHA-256 in hex by path
}

func parseRelease(text string) release {
	r := release{sums: map[string]string{}}
	field := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") {
			if columns := strings.Fields(line); field == "SHA256" && len(columns) == 3 {
				r.sums[columns[2]] = columns[0]
			}
			continue
		}
		var value string
		field, value, _ = strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); field {
		case "Suite":
			r.suite = value
		case "Codename":
			r.codename = value
		case "Valid-Until":
			if t, err := time.Parse(time.RFC1123, value); err == nil {
				r.validUntil = t
			}
		}
	}
	return r
}

// sha256Hex matches a SHA-256 in hex.
var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// parsePackages reads a file Packages. A stanza that lacks a name, a path or a sum is dropped.
func parsePackages(text string) []Package {
	var all []Package
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var p Package
		for line := range strings.Lines(stanza) {
			field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch field {
			case "Package":
				p.Name = value
			case "Architecture":
				p.Arch = value
			case "Version":
				p.Version = value
			case "SHA256":
				p.SHA256 = value
			case "Filename":
				p.Path = value
			case "Depends":
				p.Depends = parseDepends("Depends:" + value + "\n")
			}
		}
		if p.check() == nil {
			all = append(all, p)
		}
	}
	return all
}

// check returns an error if a field is missing or malformed. Path and name end up in file names.
func (p Package) check() error {
	switch {
	case p.Name == "" || strings.ContainsAny(p.Name, "/ "):
		return fmt.Errorf("package name %q", p.Name)
	case p.Version == "" || p.Arch == "":
		return fmt.Errorf("package %s without version or architecture", p.Name)
	case !sha256Hex.MatchString(p.SHA256):
		return fmt.Errorf("package %s: SHA-256 %q", p.Name, p.SHA256)
	case !strings.HasSuffix(p.Path, ".deb") || path.IsAbs(p.Path) || slices.Contains(strings.Split(p.Path, "/"), ".."):
		return fmt.Errorf("package %s: path %q", p.Name, p.Path)
	}
	return nil
}
