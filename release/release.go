// Package release signs the files of builds and verifies them. The files are called artefacts: a kernel, an initramfs,
// a tarball, an ISO, or an OCI image layout, which is a directory.
//
// Next to an artefact NAME are NAME.spdx.json, its bill of materials, NAME.provenance.json, how it was built, and
// NAME.sha256, its checksum. A unified kernel image also has NAME.pcr.json, predicted PCR values. Each of them but the
// checksum has a signature, whose name ends in .minisig. The signature of a layout is in it: index.json.minisig.
package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ironroot/internal/bounded"
	"ironroot/release/oci"
	"ironroot/release/provenance"
	"ironroot/release/signature"
	"ironroot/release/spdx"
)

// ChecksumSuffix is the end of the name of a checksum file.
const ChecksumSuffix = ".sha256"

// PredictionSuffix is the end of the name of a file with predicted PCR values. Only unified kernel images have one.
const PredictionSuffix = ".pcr.json"

// companions are the ends of the names of files that belong to an artefact.
var companions = []string{signature.Suffix, ChecksumSuffix, spdx.Suffix, provenance.Suffix, PredictionSuffix}

// maxChecksum limits a checksum file, in bytes.
const maxChecksum = 4 << 10

// Sign signs artefacts, their bills of materials, their provenance, and predicted PCR values.
func Sign(signer signature.Signer, artefacts []string) error {
	for _, path := range artefacts {
		files := []string{signedFile(path), path + spdx.Suffix, path + provenance.Suffix}
		if exists(path + PredictionSuffix) {
			files = append(files, path+PredictionSuffix)
		}
		for _, file := range files {
			if err := signer.Sign(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// signedFile returns the file of an artefact that is signed: of a layout, the index, which has the SHA-256 of all other
// files.
func signedFile(artefact string) string {
	if oci.IsLayout(artefact) {
		return filepath.Join(artefact, oci.IndexFile)
	}
	return artefact
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Verify verifies artefacts with their signatures. A path is that of an artefact, or of a directory that has only
// artefacts and what belongs to them. Each artefact that is verified is a line of log. The error names every file that
// differs or is missing.
func Verify(key signature.PublicKey, paths []string, log io.Writer) error {
	v := verifier{key: key, log: log}
	for _, path := range paths {
		v.path(path)
	}
	return errors.Join(v.problems...)
}

type verifier struct {
	key      signature.PublicKey
	log      io.Writer
	problems []error
}

func (v *verifier) report(err error) { v.problems = append(v.problems, err) }

func (v *verifier) path(path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		v.report(err)
	case info.IsDir() && !oci.IsLayout(path):
		v.directory(path)
	default:
		v.artefact(filepath.Clean(path))
	}
}

// directory verifies all artefacts in a directory.
func (v *verifier) directory(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		v.report(err)
		return
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	count := 0
	for _, name := range names {
		artefact := artefactOf(name)
		if artefact != name {
			if !slices.Contains(names, artefact) {
				v.report(fmt.Errorf("%s: there is no %s", filepath.Join(dir, name), artefact))
			}
			continue
		}
		count++
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() && !oci.IsLayout(path) {
			v.report(fmt.Errorf("%s: a directory that is not an OCI layout", path))
			continue
		}
		v.artefact(path)
	}
	if count == 0 {
		v.report(fmt.Errorf("%s: has no files to verify", dir))
	}
}

// artefactOf returns the name of the artefact that a file belongs to: name itself if it is an artefact.
func artefactOf(name string) string {
	for _, suffix := range companions {
		if artefact, ok := strings.CutSuffix(name, suffix); ok {
			return artefactOf(artefact)
		}
	}
	return name
}

func (v *verifier) artefact(path string) {
	before := len(v.problems)
	hash := sha256.New()
	if err := v.key.VerifyFile(signedFile(path), hash); err != nil {
		v.report(err)
		return // what is not signed is not read
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if oci.IsLayout(path) {
		digest, err := oci.Verify(path, oci.IndexFile+signature.Suffix)
		if err != nil {
			v.report(err)
			return
		}
		sum = digest
	} else if err := checkSum(path, sum); err != nil {
		v.report(err)
	}
	v.described(path, sum)
	if prediction := path + PredictionSuffix; exists(prediction) || exists(prediction+signature.Suffix) {
		if _, err := v.read(prediction); err != nil {
			v.report(err)
		}
	}
	if len(v.problems) == before {
		if _, err := fmt.Fprintf(v.log, "verified %s, SHA-256 %s\n", path, sum); err != nil {
			v.report(err)
		}
	}
}

// described verifies the bill of materials and the provenance of an artefact, and that they are about it.
func (v *verifier) described(path, sum string) {
	name := filepath.Base(filepath.Clean(path))
	document, err := v.read(path + spdx.Suffix)
	if err != nil {
		v.report(err)
		return
	}
	described, err := spdx.Decode(document)
	if err == nil && (described.Name != name || described.SHA256() != sum) {
		err = fmt.Errorf("describes %s with SHA-256 %s, want %s with %s", described.Name, described.SHA256(), name, sum)
	}
	if err != nil {
		v.report(fmt.Errorf("%s: %w", path+spdx.Suffix, err))
	}
	statement, err := v.read(path + provenance.Suffix)
	if err != nil {
		v.report(err)
		return
	}
	documentSum := sha256.Sum256(document)
	for subject, sum := range map[string]string{name: sum, name + spdx.Suffix: hex.EncodeToString(documentSum[:])} {
		if err := provenance.Check(statement, subject, sum); err != nil {
			v.report(fmt.Errorf("%s: %w", path+provenance.Suffix, err))
		}
	}
}

// maxDocument limits a bill of materials, provenance or prediction, in bytes.
const maxDocument = 64 << 20

// read returns the content of a signed file.
func (v *verifier) read(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxDocument {
		return nil, fmt.Errorf("%s: got %d bytes, want at most %d", path, info.Size(), maxDocument)
	}
	var content bytes.Buffer
	err := v.key.VerifyFile(path, &content)
	return content.Bytes(), err
}

// checkSum compares the checksum file of a file, if there is one, with its SHA-256 in hex.
func checkSum(path, sum string) error {
	text, err := bounded.ReadFile(path+ChecksumSuffix, maxChecksum)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The format of sha256sum.
	if want := sum + "  " + filepath.Base(path) + "\n"; string(text) != want {
		return fmt.Errorf("%s: got %q, want %q", path+ChecksumSuffix, text, want)
	}
	return nil
}
