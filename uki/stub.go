package uki

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ironroot/initramfs/debian"
)

// Package is Debian's package with the stubs.
const Package = "systemd-boot-efi"

// stubNames are the files with the stubs, by GOARCH.
var stubNames = map[string]string{"amd64": "linuxx64.efi.stub", "arm64": "linuxaa64.efi.stub"}

// readStub reads the stub for an architecture.
func readStub(ctx context.Context, o Options, arch string) ([]byte, error) {
	if o.Stub != "" {
		data, err := readLimited(o.Stub, maxImage)
		if err != nil {
			return nil, fmt.Errorf("stub: %w", err)
		}
		return data, nil
	}
	log := o.Log
	if log == nil {
		log = io.Discard
	}
	settings := o.Debian
	settings.CacheDir = o.CacheDir
	settings.Progress = func(format string, args ...any) { _, _ = fmt.Fprintf(log, format+"\n", args...) }
	if settings.CacheDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		settings.CacheDir = filepath.Join(cache, "ironroot")
	}
	data, err := fetchStub(ctx, settings, arch)
	if err != nil {
		return nil, fmt.Errorf("stub of systemd: %w", err)
	}
	return data, nil
}

func fetchStub(ctx context.Context, settings debian.Options, arch string) ([]byte, error) {
	archive, err := debian.Open(settings)
	if err != nil {
		return nil, err
	}
	deb, err := archive.Fetch(ctx, Package+":"+arch)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ironroot-stub-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	name := "usr/lib/systemd/boot/efi/" + stubNames[arch]
	wanted := func(path string) bool { return filepath.Clean(path) == name }
	if err := debian.Extract(ctx, deb, dir, wanted); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("package %s has no %s: %w", deb, name, err)
	}
	return data, nil
}
