//go:build linux

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkSecret fails if a file, a process's environment or its arguments contain the password of the pull secret. The
// image knows USER:PASSWORD of the secret backwards.
func checkSecret() error {
	pair := []byte(os.Getenv("TERCES"))
	slices.Reverse(pair)
	forms, err := secretForms(string(pair))
	if err != nil {
		return err
	}
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := searchFile(name, forms); err != nil {
				return err
			}
		}
	}
	return searchFiles("/", forms)
}

// secretForms returns the forms of a secret that programs store: the password, which podman's auth.json has as the
// base64 form of USER:PASSWORD, and Ironic's form, which is encoded twice. Without padding they are found with it, too.
func secretForms(pair string) ([]string, error) {
	_, password, found := strings.Cut(pair, ":")
	if !found || password == "" {
		return nil, errors.New("no secret to search for")
	}
	forms := []string{password, base64.RawStdEncoding.EncodeToString(
		[]byte(base64.StdEncoding.EncodeToString([]byte(pair))))}
	for _, text := range []string{pair, password} {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			forms = append(forms, encoding.EncodeToString([]byte(text)))
		}
	}
	return forms, nil
}

// searchFiles fails if a file below a directory contains one of the texts.
func searchFiles(root string, texts []string) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == "/proc" || name == "/sys" || name == "/dev") {
			return fs.SkipDir
		}
		return searchFile(name, texts)
	})
}

// searchFile fails if a file contains one of the texts, which the error does not quote.
func searchFile(name string, texts []string) error {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() > 1<<20) {
		return nil // is gone, or holds no text
	}
	if err != nil {
		return err
	}
	content, err := os.ReadFile(name)
	if err != nil && strings.HasPrefix(name, "/proc/") {
		return nil // the process has ended, or nobody in the container can read it
	}
	if err != nil {
		return err
	}
	for i, text := range texts {
		if bytes.Contains(content, []byte(text)) {
			return fmt.Errorf("%s contains form %d of the pull secret", name, i)
		}
	}
	return nil
}
