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

// stub is the program that the sections are added to.
type stub struct {
	content []byte
	name    string          // path in the package
	deb     string          // path of the package, "" = Options.Stub
	archive *debian.Archive // has the package
}

// readStub reads the stub for an architecture.
func readStub(ctx context.Context, o Options, arch string) (stub, error) {
	if o.Stub != "" {
		data, err := bounded.ReadFile(o.Stub, maxImage)
		if err != nil {
			return stub{}, fmt.Errorf("stub: %w", err)
		}
		return stub{content: data}, nil
	}
	log := o.Log
	if log == nil {
		log = io.Discard
	}
	settings := o.Debian
	settings.CacheDir = o.CacheDir
	settings.Progress = func(format string, args ...any) { _, _ = fmt.Fprintf(log, format+"\n", args...) }
	s, err := fetchStub(ctx, settings, arch)
	if err != nil {
		return stub{}, fmt.Errorf("stub of systemd: %w", err)
	}
	return s, nil
}

func fetchStub(ctx context.Context, settings debian.Options, arch string) (stub, error) {
	archive, err := debian.Open(settings)
	if err != nil {
		return stub{}, err
	}
	s := stub{name: "usr/lib/systemd/boot/efi/" + stubNames[arch], archive: archive}
	s.deb, err = archive.ReadFiles(ctx, Package+":"+arch, map[string]*[]byte{s.name: &s.content})
	return s, err
}
