package uki

import (
	"context"
	"fmt"
	"io"

	"ironroot/initramfs/debian"
	"ironroot/internal/bounded"
)

// Package is Debian's package with the stubs.
const Package = "systemd-boot-efi"

// stubNames are the files with the stubs, by GOARCH.
var stubNames = map[string]string{"amd64": "linuxx64.efi.stub", "arm64": "linuxaa64.efi.stub"}

// readStub reads the stub for an architecture, from the options' file or from Debian's package.
func readStub(ctx context.Context, o Options, arch string) ([]byte, *debian.Used, error) {
	if o.Stub != "" {
		data, err := bounded.ReadFile(o.Stub, maxImage)
		if err != nil {
			return nil, nil, fmt.Errorf("stub: %w", err)
		}
		return data, nil, nil
	}
	log := o.Log
	if log == nil {
		log = io.Discard
	}
	settings := o.Debian
	settings.CacheDir = o.CacheDir
	settings.Progress = log
	used, err := fetchStub(ctx, settings, arch)
	if err != nil {
		return nil, nil, fmt.Errorf("stub of systemd: %w", err)
	}
	return used.Files[0].Content, used, nil
}

// fetchStub reads the stub from Debian's package. It is the only file.
func fetchStub(ctx context.Context, settings debian.Options, arch string) (*debian.Used, error) {
	archive, err := debian.Open(settings)
	if err != nil {
		return nil, err
	}
	file := debian.UsedFile{Name: "stub", Path: "usr/lib/systemd/boot/efi/" + stubNames[arch]}
	deb, err := archive.ReadFiles(ctx, Package+":"+arch, map[string]*[]byte{file.Path: &file.Content})
	if err != nil {
		return nil, err
	}
	return &debian.Used{Archive: archive, Debs: []string{deb}, Files: []debian.UsedFile{file}}, nil
}
