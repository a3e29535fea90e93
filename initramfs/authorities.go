package initramfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/initramfs/debian"
	"ironroot/internal/authorities"
)

// AuthoritiesPackage is the Debian package with the certificates of public certificate authorities. It does not depend
// on the architecture.
const AuthoritiesPackage = "ca-certificates"

const (
	// authoritiesFile contains the certificate authorities that the ramdisk trusts. crypto/x509 tries it first.
	authoritiesFile = "etc/ssl/certs/ca-certificates.crt"
	// certificatesDir contains the certificates of the package, each in a file.
	certificatesDir = "usr/share/ca-certificates/mozilla/"
	// certificatesSource is the file of the source package that the certificates are generated from.
	certificatesSource = "mozilla/certdata.txt"
)

// authorities returns the records of authoritiesFile, unless it is one of the extra files.
func (b *builder) authorities(ctx context.Context, extra []cpio.Record) ([]cpio.Record, error) {
	if slices.ContainsFunc(extra, func(r cpio.Record) bool { return r.Name == authoritiesFile }) {
		if len(b.CAFiles) > 0 {
			return nil, fmt.Errorf("certificate authorities: got --ca-file and the extra file /%s, want one of them",
				authoritiesFile)
		}
		return nil, nil
	}
	read := b.publicAuthorities
	if len(b.CAFiles) > 0 {
		read = b.ownAuthorities
	}
	text, err := read(ctx)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	b.count("certificate authorities", 1, int64(len(text)))
	return append(parents(authoritiesFile, map[string]bool{"etc": true}),
		cpio.StaticFile(authoritiesFile, string(text), 0o644)), nil
}

// ownAuthorities returns the joined CA files of the operator. A block that the agent could not use is an error.
func (b *builder) ownAuthorities(context.Context) ([]byte, error) {
	texts, err := readFiles(b.CAFiles)
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		_, unusable, err := authorities.Parse(text)
		if err := errors.Join(append(unusable, err)...); err != nil {
			return nil, fmt.Errorf("%s: %w", b.CAFiles[i], err)
		}
	}
	b.note(authoritiesFile, origin{own: true})
	return slices.Concat(texts...), nil
}

// publicAuthorities returns the joined certificates of the package, in the order of update-ca-certificates(8).
func (b *builder) publicAuthorities(ctx context.Context) ([]byte, error) {
	deb, err := b.archive.Fetch(ctx, AuthoritiesPackage+":"+b.Arch)
	if err != nil {
		return nil, fmt.Errorf("%w\nauthorities of your own do as well: --ca-file FILE", err)
	}
	root := filepath.Join(b.CacheDir, "certificates", strings.TrimSuffix(filepath.Base(deb), ".deb"))
	err = debian.ExtractAll(ctx, []string{deb}, root, func(name string) bool {
		return strings.HasPrefix(name, certificatesDir) && name != certificatesDir ||
			name == "usr/share/doc/"+AuthoritiesPackage+"/copyright"
	}, nil)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, certificatesDir, "*.crt")) // sorted
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("package %s has no certificate in /%s", filepath.Base(deb), certificatesDir)
	}
	b.authorityDebs, b.authorityRoot = []string{deb}, root
	b.note(authoritiesFile, origin{file: files[0], source: certificatesSource})
	texts, err := readFiles(files)
	return slices.Concat(texts...), err
}

// readFiles returns the contents of files, each with a line feed at its end.
func readFiles(names []string) ([][]byte, error) {
	var texts [][]byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		texts = append(texts, text)
	}
	return texts, nil
}
