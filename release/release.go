package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
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

// Verify verifies artefacts with their signatures. A path names an artefact, or a directory that has only artefacts and
// what belongs to them. Each artefact that is verified, with all files that belong to it, is a line of log. The error
// names every file that differs, is missing, or that no verified signature covers.
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
		if !signature.ValidName(e.Name()) { // a terminal would interpret it
			v.report(fmt.Errorf("%s: not verified: name %q has characters that are not printable", dir, e.Name()))
			continue
		}
		names = append(names, e.Name())
	}
	var artefacts []string
	belongs := map[string]bool{}
	for _, name := range names {
		if artefactOf(name) == name {
			artefacts = append(artefacts, name)
			for _, companion := range companionsOf(filepath.Join(dir, name)) {
				belongs[filepath.Base(companion)] = true
			}
		}
	}
	for _, name := range names {
		switch artefact := artefactOf(name); {
		case artefact == name || belongs[name]:
		case !slices.Contains(names, artefact):
			v.report(fmt.Errorf("%s: not verified: there is no %s", filepath.Join(dir, name), artefact))
		default:
			v.report(fmt.Errorf("%s: not verified: no signature covers such a file", filepath.Join(dir, name)))
		}
	}
	for _, name := range artefacts {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() && !oci.IsLayout(path) {
			v.report(fmt.Errorf("%s: a directory that is not an OCI layout", path))
			continue
		}
		v.artefact(path)
	}
	if len(artefacts) == 0 {
		v.report(fmt.Errorf("%s: has no files to verify", dir))
	}
}

// companionsOf returns the files that can belong to an artefact, and are verified with it. The signature of a layout is
// in it.
func companionsOf(artefact string) []string {
	files := []string{artefact + spdx.Suffix, artefact + provenance.Suffix, artefact + PredictionSuffix}
	for _, document := range files {
		files = append(files, document+signature.Suffix)
	}
	if !oci.IsLayout(artefact) {
		files = append(files, artefact+signature.Suffix, artefact+ChecksumSuffix)
	}
	return files
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

// artefact verifies an artefact and the files that belong to it. If it differs, it also reports these files: nothing
// says that they belong to it.
func (v *verifier) artefact(path string) {
	before := len(v.problems)
	sum, err := v.verifyContent(path)
	if err != nil {
		v.report(err)
		for _, file := range companionsOf(path) {
			if exists(file) {
				v.report(fmt.Errorf("%s: not verified, as %s is not", file, path))
			}
		}
		return
	}
	if !oci.IsLayout(path) {
		if err := checkSum(path, sum); err != nil {
			v.report(err)
		}
	}
	v.verifyDocuments(path, sum)
	if len(v.problems) == before {
		if _, err := fmt.Fprintf(v.log, "verified %s, SHA-256 %s\n", path, sum); err != nil {
			v.report(err)
		}
	}
}

// verifyContent verifies an artefact with its signature, and returns its SHA-256 in hex: of a layout, the SHA-256 of
// its images. Files without a signature are not read.
func (v *verifier) verifyContent(path string) (string, error) {
	hash := sha256.New()
	if err := v.key.VerifyFile(signedFile(path), hash); err != nil {
		return "", err
	}
	if oci.IsLayout(path) {
		return oci.Verify(path, oci.IndexFile+signature.Suffix)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// verifyDocuments verifies the documents of an artefact: its bill of materials, its provenance, and predicted PCR
// values if it has some. The provenance says to which content the others belong.
func (v *verifier) verifyDocuments(path, sum string) {
	name := filepath.Base(filepath.Clean(path))
	sums := map[string]string{name: sum}
	files := []string{path + spdx.Suffix, path + provenance.Suffix}
	if prediction := path + PredictionSuffix; exists(prediction) || exists(prediction+signature.Suffix) {
		files = append(files, prediction)
	}
	documents := map[string][]byte{}
	for _, file := range files {
		content, err := v.read(file)
		if err != nil {
			v.report(err)
			continue
		}
		documents[file] = content
		if file != path+provenance.Suffix {
			documentSum := sha256.Sum256(content)
			sums[filepath.Base(file)] = hex.EncodeToString(documentSum[:])
		}
	}
	if document, ok := documents[path+spdx.Suffix]; ok {
		described, err := spdx.Decode(document)
		if err == nil && (described.Name != name || described.SHA256() != sum) {
			err = fmt.Errorf("describes %s with SHA-256 %s, want %s with %s",
				described.Name, described.SHA256(), name, sum)
		}
		if err != nil {
			v.report(fmt.Errorf("%s: %w", path+spdx.Suffix, err))
		}
	}
	statement, ok := documents[path+provenance.Suffix]
	if !ok || len(documents) < len(files) {
		return // what is missing was reported
	}
	for _, err := range checkSubjects(statement, sums) {
		v.report(fmt.Errorf("%s: %w", path+provenance.Suffix, err))
	}
}

// checkSubjects returns an error for each file that a statement of provenance is not about, and for each that it is
// about and that was not verified. sums are the SHA-256 of the verified files, in hex.
func checkSubjects(statement []byte, sums map[string]string) []error {
	subjects, err := provenance.Subjects(statement)
	if err != nil {
		return []error{err}
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if want, ok := subjects[name]; !ok {
			problems = append(problems, fmt.Errorf("is not about %s", name))
		} else if got := sums[name]; got != want {
			problems = append(problems, fmt.Errorf("%s has SHA-256 %s, want %s", name, got, want))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		if _, ok := sums[name]; !ok {
			problems = append(problems, fmt.Errorf("is about %s, which is missing", name))
		}
	}
	return problems
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
