package spdx

import (
	"bytes"
	"cmp"
	"crypto/sha1" // SPDX 2.3 requires it in addition to SHA-256
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Suffix is the end of the name of a document. The rest is the name of the artefact.
const Suffix = ".spdx.json"

// Unknown is the licence of what has no known licence.
const Unknown = "NOASSERTION"

// maxDocument limits a document that is read, in bytes.
const maxDocument = 64 << 20

// Document is a document in SPDX 2.3. Fields are defined by the specification.
type Document struct {
	ID            string         `json:"SPDXID"`
	Version       string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Describes     []string       `json:"documentDescribes"`
	Packages      []Package      `json:"packages"`
	Files         []File         `json:"files,omitempty"`
	Licenses      []License      `json:"hasExtractedLicensingInfos,omitempty"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// Package is an artefact, or something that artefacts are made from.
type Package struct {
	ID              string            `json:"SPDXID"`
	Name            string            `json:"name"`
	Version         string            `json:"versionInfo,omitempty"`
	FileName        string            `json:"packageFileName,omitempty"`
	Supplier        string            `json:"supplier,omitempty"` // "Organization: NAME"
	Purpose         string            `json:"primaryPackagePurpose,omitempty"`
	Download        string            `json:"downloadLocation"`
	FilesAnalyzed   bool              `json:"filesAnalyzed"`
	Code            *verificationCode `json:"packageVerificationCode,omitempty"`
	Checksums       []checksum        `json:"checksums,omitempty"`
	Concluded       string            `json:"licenseConcluded"`
	LicensesInFiles []string          `json:"licenseInfoFromFiles,omitempty"`
	Declared        string            `json:"licenseDeclared"`
	LicenseComments string            `json:"licenseComments,omitempty"`
	Copyright       string            `json:"copyrightText"`
	SourceInfo      string            `json:"sourceInfo,omitempty"`
	References      []reference       `json:"externalRefs,omitempty"`

	// DirHash is the hash of a Go module in hex (https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash, Hash1). SPDX has no
	// name for it, so that it is not part of the document.
	DirHash string `json:"-"`
}

// URL returns the package URL, "" if there is none.
func (p Package) URL() string {
	for _, r := range p.References {
		if r.Type == "purl" {
			return r.Locator
		}
	}
	return ""
}

// Digests returns the known digests of the package in hex, by the names that in-toto has for them.
func (p Package) Digests() map[string]string {
	digests := map[string]string{}
	for _, c := range p.Checksums {
		digests[strings.ToLower(c.Algorithm)] = c.Value
	}
	if p.DirHash != "" {
		digests["dirHash"] = p.DirHash
	}
	return digests
}

// File is a file in an artefact.
type File struct {
	ID        string     `json:"SPDXID"`
	Name      string     `json:"fileName"`
	Checksums []checksum `json:"checksums"`
	Concluded string     `json:"licenseConcluded"`
	Licenses  []string   `json:"licenseInfoInFiles"`
	Copyright string     `json:"copyrightText"`
	Comment   string     `json:"comment,omitempty"`
}

// License is a licence that is not on the list of SPDX.
type License struct {
	ID   string `json:"licenseId"` // "LicenseRef-..."
	Name string `json:"name,omitempty"`
	Text string `json:"extractedText"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type verificationCode struct {
	Value string `json:"packageVerificationCodeValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	documentID = "SPDXRef-DOCUMENT"
	version    = "SPDX-2.3"
)

// New returns the document of an artefact with the given name, version and SHA-256 in hex. purpose is one of the
// purposes of packages in SPDX, such as ARCHIVE.
func New(name, release, sum, purpose string) *Document {
	artefact := Package{
		ID: "SPDXRef-Artefact-" + idString(name), Name: name, Version: release, FileName: name, Purpose: purpose,
		Download: Unknown, Concluded: Unknown, Declared: Unknown, Copyright: Unknown,
		Checksums: []checksum{{"SHA256", sum}},
	}
	return &Document{
		ID: documentID, Version: version, DataLicense: "CC0-1.0", Name: name,
		Describes: []string{artefact.ID}, Packages: []Package{artefact},
		Relationships: []relationship{{documentID, "DESCRIBES", artefact.ID}},
	}
}

func (d *Document) artefact() *Package { return &d.Packages[0] }

// Artefact returns the ID of the artefact.
func (d *Document) Artefact() string { return d.artefact().ID }

// SHA256 returns the SHA-256 of the artefact in hex.
func (d *Document) SHA256() string {
	for _, c := range d.artefact().Checksums {
		if c.Algorithm == "SHA256" {
			return c.Value
		}
	}
	return ""
}

// SetSource sets the description of the source that the artefact was built from.
func (d *Document) SetSource(text string) { d.artefact().SourceInfo = text }

// AddPackage adds a package that is not an artefact, and returns its ID. A package that the document has is not added
// again. sum is the SHA-256 of the package in hex, "" = unknown. url is its package URL.
func (d *Document) AddPackage(p Package, sum, url string) string {
	p.ID = "SPDXRef-Package-" + idString(url)
	if slices.ContainsFunc(d.Packages, func(have Package) bool { return have.ID == p.ID }) {
		return p.ID
	}
	p.Download = cmp.Or(p.Download, Unknown)
	p.Concluded, p.Declared, p.Copyright = cmp.Or(p.Concluded, Unknown), cmp.Or(p.Declared, Unknown), Unknown
	if sum != "" {
		p.Checksums = []checksum{{"SHA256", sum}}
	}
	p.References = []reference{{"PACKAGE-MANAGER", "purl", url}}
	d.Packages = append(d.Packages, p)
	return p.ID
}

// AddFile adds a file of the artefact and returns its ID. The name is its path in the artefact. license is an
// expression of SPDX, "" = unknown.
func (d *Document) AddFile(name string, content []byte, license, comment string) string {
	sum1, sum256 := sha1.Sum(content), sha256.Sum256(content)
	id := sha256.Sum256([]byte(d.Name + "\x00" + name))
	license = cmp.Or(license, Unknown)
	f := File{
		ID: "SPDXRef-File-" + hex.EncodeToString(id[:12]), Name: "./" + name,
		Checksums: []checksum{{"SHA1", hex.EncodeToString(sum1[:])}, {"SHA256", hex.EncodeToString(sum256[:])}},
		Concluded: Unknown, Licenses: Names(license), Copyright: Unknown, Comment: comment,
	}
	d.Files = append(d.Files, f)
	d.Relate(d.Artefact(), "CONTAINS", f.ID)
	return f.ID
}

// AddLicense adds the text of a licence whose ID begins with LicenseRef-.
func (d *Document) AddLicense(l License) {
	if !slices.ContainsFunc(d.Licenses, func(have License) bool { return have.ID == l.ID }) {
		d.Licenses = append(d.Licenses, l)
	}
}

// Relate adds a relationship between two elements.
func (d *Document) Relate(from, kind, to string) {
	r := relationship{from, kind, to}
	d.Relationships = append(d.Relationships, r)
}

// Include adds everything of another document: its artefact is contained in the one of d.
func (d *Document) Include(other *Document) {
	for _, p := range other.Packages {
		if !slices.ContainsFunc(d.Packages, func(have Package) bool { return have.ID == p.ID }) {
			d.Packages = append(d.Packages, p)
		}
	}
	d.Files = append(d.Files, other.Files...)
	for _, l := range other.Licenses {
		d.AddLicense(l)
	}
	for _, r := range other.Relationships {
		if r.From != documentID {
			d.Relationships = append(d.Relationships, r)
		}
	}
	d.Relate(d.Artefact(), "CONTAINS", other.Artefact())
}

// Encode returns the document as JSON. created is its date; tool names the program that made it. The namespace is
// derived from the content, so that only equal documents have equal ones.
func (d *Document) Encode(created time.Time, tool string) ([]byte, error) {
	d.Creation = creation{created.UTC().Format(time.RFC3339), []string{"Tool: " + tool}}
	slices.SortFunc(d.Packages[1:], func(a, b Package) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(d.Files, func(a, b File) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	slices.SortFunc(d.Licenses, func(a, b License) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(d.Relationships, func(a, b relationship) int {
		return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.Type, b.Type), strings.Compare(a.To, b.To))
	})
	d.Relationships = slices.Compact(d.Relationships)
	d.analyze()
	d.Namespace = ""
	plain, err := d.marshal()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(plain)
	d.Namespace = "https://spdx.org/spdxdocs/" + idString(d.Name) + "-" + hex.EncodeToString(sum[:16])
	return d.marshal()
}

func (d *Document) marshal() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(d)
	return out.Bytes(), err
}

// analyze sets the fields of each artefact that are derived from its files (SPDX 2.3, 7.9).
func (d *Document) analyze() {
	files := map[string]File{}
	for _, f := range d.Files {
		files[f.ID] = f
	}
	sums, licenses := map[string][]string{}, map[string][]string{} // by artefact
	for _, r := range d.Relationships {
		if f, ok := files[r.To]; ok && r.Type == "CONTAINS" {
			sums[r.From] = append(sums[r.From], f.Checksums[0].Value)
			licenses[r.From] = append(licenses[r.From], f.Licenses...)
		}
	}
	for i := range d.Packages {
		p := &d.Packages[i]
		if len(sums[p.ID]) == 0 {
			continue
		}
		slices.Sort(sums[p.ID])
		code := sha1.Sum([]byte(strings.Join(sums[p.ID], "")))
		p.FilesAnalyzed, p.Code = true, &verificationCode{hex.EncodeToString(code[:])}
		slices.Sort(licenses[p.ID])
		p.LicensesInFiles = slices.Compact(licenses[p.ID])
	}
}

// Decode returns a document that Encode has made.
func Decode(data []byte) (*Document, error) {
	if len(data) > maxDocument {
		return nil, fmt.Errorf("SPDX document: got %d bytes, want at most %d", len(data), maxDocument)
	}
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("SPDX document: %w", err)
	}
	if d.Version != version {
		return nil, fmt.Errorf("SPDX document: got version %q, want %s", d.Version, version)
	}
	if len(d.Packages) == 0 || len(d.Describes) != 1 || d.Describes[0] != d.Packages[0].ID {
		return nil, errors.New("SPDX document: its first package is not the artefact that it describes")
	}
	if d.SHA256() == "" {
		return nil, errors.New("SPDX document: its artefact has no SHA-256")
	}
	for _, f := range d.Files {
		if len(f.Checksums) == 0 {
			return nil, fmt.Errorf("SPDX document: file %s has no checksum", f.Name)
		}
	}
	return &d, nil
}

// Names returns the names of the licences in an expression, each once.
func Names(expression string) []string {
	names := map[string]bool{}
	words := strings.Fields(strings.NewReplacer("(", " ", ")", " ").Replace(expression))
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "AND", "OR":
		case "WITH":
			i++
		default:
			names[words[i]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// idString returns a text as part of an ID: letters, digits, "." and "-". Texts that would be equal afterwards get
// a hash.
func idString(text string) string {
	id := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, text)
	if id == text {
		return id
	}
	sum := sha256.Sum256([]byte(text))
	return id + "-" + hex.EncodeToString(sum[:4])
}

// URL returns a package URL (https://github.com/package-url/purl-spec). Qualifiers with an empty value are omitted.
func URL(kind, name, version string, qualifiers ...[2]string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = escape(part)
	}
	url := "pkg:" + kind + "/" + strings.Join(parts, "/")
	if version != "" {
		url += "@" + escape(version)
	}
	separator := "?"
	for _, q := range qualifiers {
		if q[1] != "" {
			url += separator + q[0] + "=" + escape(q[1])
			separator = "&"
		}
	}
	return url
}

func escape(text string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(".-_~:", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}
