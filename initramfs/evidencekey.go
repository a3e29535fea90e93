package initramfs

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"ironroot/initramfs/squashfs"
)

// checkNoEvidenceKey returns an error if a file contains a private key for evidence.
func checkNoEvidenceKey(name string, data []byte) error {
	if !hasEvidenceKey(data) {
		return nil
	}
	return evidenceKeyError(name)
}

func evidenceKeyError(name string) error {
	return fmt.Errorf("%s contains an Ed25519 private key, want none in the image of all nodes: a key for erase "+
		"evidence is passed by virtual media or by an archive for one node, see docs/erase-evidence.md", name)
}

// hasEvidenceKey reports whether a file contains a private key for evidence: a PEM block with an Ed25519 key in PKCS
// #8, wherever in the file it is. Keys of other types, such as keys of TLS client certificates, are not for evidence.
func hasEvidenceKey(data []byte) bool {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if _, ok := key.(ed25519.PrivateKey); ok {
				return true
			}
		}
	}
	return false
}

const (
	// searchBytes is the number of bytes that are searched at a time.
	searchBytes = 1 << 20
	// maxKeyBytes limits the bytes of a key that is found wherever it is in a file. The agent accepts no larger file.
	maxKeyBytes = 64 << 10
)

// checkNoEvidenceKeys returns an error if a file of a manager root contains a private key for evidence. Programs in the
// root could sign with it, and so could everyone who can read the image.
func checkNoEvidenceKeys(ctx context.Context, entries []squashfs.Entry) error {
	buffer := make([]byte, maxKeyBytes+searchBytes)
	for _, e := range entries {
		if e.Content == nil { // a directory, or a link whose target is searched
			continue
		}
		found, err := searchEvidenceKey(ctx, e, buffer)
		if err != nil {
			return fmt.Errorf("search %s for keys: %w", e.Path, err)
		}
		if found {
			return evidenceKeyError(e.Path)
		}
	}
	return nil
}

// searchEvidenceKey reports whether a file contains a private key for evidence. It searches parts of the file, each
// with the end of the part before it.
func searchEvidenceKey(ctx context.Context, e squashfs.Entry, buffer []byte) (bool, error) {
	f, err := e.Content.Open()
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // only read
	for start := int64(0); start < e.Size; start += searchBytes {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		before := max(0, start-maxKeyBytes)
		part := buffer[:min(e.Size, start+searchBytes)-before]
		if n, err := f.ReadAt(part, before); n < len(part) {
			return false, err
		}
		if hasEvidenceKey(part) {
			return true, nil
		}
	}
	return false, nil
}
