package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// Fetch downloads the newest version of a package that apt knows of into cacheDir and returns the path of the .deb. A
// version that is there already is not fetched again. Where apt cannot be asked (no network, no apt), the newest one in
// cacheDir serves. A meta package is fetched as such: Depends says what it stands for.
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
	// apt's lists may be absent or too old, and only root may renew them: use lists of our own.
	own, errLists := ownLists(ctx, cacheDir)
	if errLists == nil {
		if path, errLists = download(ctx, cacheDir, pkg, own); errLists == nil {
			return path, nil
		}
	}
	if path, ok := newestCached(cacheDir, pkg); ok {
		return path, nil
	}
	return "", fmt.Errorf("fetch package %s: %w", pkg, errors.Join(err, errLists))
}

// download asks apt for the newest version and fetches it unless it is cached.
func download(ctx context.Context, cacheDir, pkg string, options []string) (string, error) {
	out, err := apt(ctx, cacheDir, append(options, "download", "--print-uris", pkg)...)
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
	if _, err := apt(ctx, work, append(options, "-o", "APT::Sandbox::User=", "download", pkg)...); err != nil {
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

// ownLists brings apt's package lists below cacheDir up to date and returns the options that make apt use them.
func ownLists(ctx context.Context, cacheDir string) ([]string, error) {
	state := filepath.Join(cacheDir, "apt")
	if err := os.MkdirAll(filepath.Join(state, "lists", "partial"), 0o755); err != nil {
		return nil, err
	}
	options := []string{
		"-o", "Dir::State::lists=" + filepath.Join(state, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(state, "cache"),
		"-o", "APT::Sandbox::User=",
		"-o", "Debug::NoLocking=1",
	}
	_, err := apt(ctx, cacheDir, append(options, "update")...)
	return options, err
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
	paths, err := filepath.Glob(filepath.Join(cacheDir, pkg+"_*.deb"))
	if err != nil || len(paths) == 0 {
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
