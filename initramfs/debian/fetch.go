package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"
)

// Fetch downloads the newest version of a package that apt knows of into cacheDir and returns the path of the .deb. A
// version that is there already is not fetched again. Where apt cannot be asked (no network, no apt), the newest one in
// cacheDir serves. A meta package is fetched as such: Depends says what it stands for. NAME:ARCH asks for a package of
// another architecture; neither the machine's apt nor its dpkg need know of that one, as long as the archive has it.
//
// apt checks the signature of the archive and the checksum of what it downloads.
func Fetch(ctx context.Context, cacheDir, pkg string) (string, error) {
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", fmt.Errorf("package %s: %w", pkg, err)
	}
	path, err := download(ctx, cacheDir, pkg, nil)
	if err == nil {
		return path, nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	// apt's lists may be absent, too old or of another architecture, and only root may renew them: use lists of our own.
	path, errOwn := downloadOwn(ctx, cacheDir, pkg)
	if errOwn == nil {
		return path, nil
	}
	if path, ok := newestCached(cacheDir, pkg); ok {
		return path, nil
	}
	return "", fmt.Errorf("fetch package %s: %w", pkg, errors.Join(err, errOwn))
}

// download asks apt for the newest version and fetches it unless it is cached.
func download(ctx context.Context, cacheDir, pkg string, options []string) (string, error) {
	out, err := apt(ctx, cacheDir, append(slices.Clone(options), "download", "--print-uris", pkg)...)
	if err != nil {
		return "", err
	}
	name, err := parseURI(out)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cacheDir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	// Downloaded beside and renamed, so that a file under its final name is always whole.
	work, err := os.MkdirTemp(cacheDir, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work) //nolint:errcheck // a leftover does no harm
	if _, err := apt(ctx, work, append(slices.Clone(options), "-o", "APT::Sandbox::User=", "download", pkg)...); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(work, name), path); err != nil {
		return "", err
	}
	return path, nil
}

// parseURI reads the file's name from the line 'URL' NAME SIZE HASH of apt-get --print-uris.
func parseURI(out []byte) (string, error) {
	fields := strings.Fields(string(out))
	if len(fields) < 3 || !strings.HasSuffix(fields[1], ".deb") || strings.Contains(fields[1], "/") {
		return "", fmt.Errorf("apt-get --print-uris said %q, want 'URL' NAME.deb SIZE HASH", bytes.TrimSpace(out))
	}
	return fields[1], nil
}

// renewAfter is how long own package lists serve before apt is asked for newer ones.
const renewAfter = time.Hour

// downloadOwn is download by package lists below cacheDir, one set for each architecture.
func downloadOwn(ctx context.Context, cacheDir, pkg string) (string, error) {
	arch := architecture(pkg)
	state, err := filepath.Abs(filepath.Join(cacheDir, "apt", arch))
	if err != nil {
		return "", err
	}
	options := []string{
		"-o", "APT::Architecture=" + arch,
		"-o", "APT::Architectures=" + arch,
		"-o", "Dir::State::lists=" + filepath.Join(state, "lists"),
		"-o", "Dir::State::status=/dev/null", // what is installed here is of no interest
		"-o", "Dir::Cache=" + filepath.Join(state, "cache"),
		"-o", "APT::Sandbox::User=",
		"-o", "Debug::NoLocking=1",
	}
	stamp := filepath.Join(state, "updated")
	if info, err := os.Stat(stamp); err == nil && time.Since(info.ModTime()) < renewAfter {
		if path, err := download(ctx, cacheDir, pkg, options); err == nil {
			return path, nil
		}
	}
	if err := os.MkdirAll(filepath.Join(state, "lists", "partial"), 0o755); err != nil {
		return "", err
	}
	if _, err := apt(ctx, cacheDir, append(slices.Clone(options), "update")...); err != nil {
		return "", err
	}
	if err := os.WriteFile(stamp, nil, 0o644); err != nil {
		return "", err
	}
	return download(ctx, cacheDir, pkg, options)
}

// architecture is the one that pkg names, else this machine's. Debian calls those it shares with Go by the same names.
func architecture(pkg string) string {
	if _, arch, found := strings.Cut(pkg, ":"); found {
		return arch
	}
	return runtime.GOARCH
}

func apt(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq"}, args...)...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get %s: %w: %s", args[len(args)-1], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// newestCached returns the file of pkg in cacheDir that was fetched last.
func newestCached(cacheDir, pkg string) (string, bool) {
	name, _, _ := strings.Cut(pkg, ":")
	var paths []string
	for _, arch := range []string{architecture(pkg), "all"} {
		found, err := filepath.Glob(filepath.Join(cacheDir, name+"_*_"+arch+".deb"))
		if err != nil {
			return "", false
		}
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		return "", false
	}
	modified := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	sort.Slice(paths, func(i, j int) bool { return modified(paths[i]) > modified(paths[j]) })
	return paths[0], true
}
