//go:build unix

// Package cachedir builds files and directories once, and keeps them in the user's cache.
package cachedir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Get returns the path of a file or directory in the cache. If it is missing, build creates it at the path that it is
// called with. The path contains name and a hash of recipe, all that the result depends on. A lock prevents concurrent
// builds, also by other processes. The cache "" is ironroot in the user's cache. The caller must not change the result.
func Get(cache, name, recipe string, build func(path string) error) (string, error) {
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "ironroot")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	hash := sha256.Sum256([]byte(recipe))
	path := filepath.Join(cache, name+"-"+hex.EncodeToString(hash[:6]))
	lock, err := os.Create(path + ".lock")
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.RemoveAll(path + ".new"); err != nil {
		return "", err
	}
	if err := build(path + ".new"); err != nil {
		return "", errors.Join(err, os.RemoveAll(path+".new"))
	}
	return path, os.Rename(path+".new", path)
}
