package initramfs

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// checkNoEvidenceKey returns an error if a file contains a private key for evidence.
func checkNoEvidenceKey(name string, data []byte) error {
	if !hasEvidenceKey(data) {
		return nil
	}
	return fmt.Errorf("%s contains an Ed25519 private key, want none in the image of all nodes: a key for erase "+
		"evidence is passed by virtual media or by an archive for one node, see docs/erase-evidence.md", name)
}

// hasEvidenceKey reports whether a file contains a private key for evidence: a PEM block with an Ed25519 key in PKCS
// #8, wherever in the file it is. Keys of other types, such as those of TLS client certificates, are not for evidence.
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
