package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Artifact is the disk image behind an oci:// reference.
type Artifact struct {
	URL      string   // of the blob
	Checksum Checksum // the blob's digest
	// Fetch is the one that ResolveOCI was called with, and what the registry asks for in addition. A token that expires
	// while the image is fetched is replaced by a new one.
	Fetch Fetch
}

// maxManifest limits what is read of a manifest: the distribution specification has registries take 4 MiB.
const maxManifest = 4 << 20

const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaEmpty    = "application/vnd.oci.empty.v1+json" // the config of an artifact that is no container
)

// diskTypes are the values of the annotation "disktype", those that can be written as they arrive first. An artifact
// without the annotation comes after all of them.
var diskTypes = []string{"raw", "applehv", "qcow2", "qemu", ""}

// ResolveOCI finds the disk image that a reference of the form oci://HOST[:PORT]/REPOSITORY[:TAG][@DIGEST] means, by the
// OCI distribution and image specifications 1.1, always by https: the layer of an artifact of one layer. Where the
// reference leads to an index, the artifact for the machine's architecture (as Go calls it) counts, and among those the
// annotation "disktype" decides, as in Ironic. f.Header may hold an Authorization: a Bearer token is sent to the registry as it is,
// basic credentials are exchanged for a token where the registry wants one.
//
// The errors of the registry are *DownloadError and *TimeoutError; all others mean a bad request.
func ResolveOCI(ctx context.Context, f Fetch, reference, architecture string) (Artifact, error) {
	ref, err := parseReference(reference)
	if err != nil {
		return Artifact{}, err
	}
	f.registry = newRegistrySession(f, ref.repository)
	f.Header = f.Header.Clone()
	f.Header.Del("Authorization")
	accepting := f
	accepting.Header = http.Header{"Accept": {mediaIndex + ", " + mediaManifest}}
	fetcher := newFetcher(accepting, nil, nil)
	var digest string
	err = f.within(ctx, ref.url("manifests", ref.what()), func(ctx context.Context) (err error) {
		digest, err = fetcher.findBlob(ctx, ref, architecture)
		return err
	})
	if err != nil {
		return Artifact{}, fmt.Errorf("%s: %w", redactURL(reference), err)
	}
	algorithm, value, _ := strings.Cut(digest, ":")
	return Artifact{URL: ref.url("blobs", digest), Checksum: Checksum{Algorithm: algorithm, Value: value}, Fetch: f}, nil
}

// ociReference is a reference in its parts.
type ociReference struct{ host, repository, tag, digest string }

var (
	repositoryPattern = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagPattern        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	digestPattern     = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)
)

// parseReference takes a reference apart. Its errors do not repeat what might be a secret.
func parseReference(text string) (ociReference, error) {
	u, err := url.Parse(text)
	if err != nil || !strings.EqualFold(u.Scheme, "oci") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return ociReference{}, errors.New("the image reference is not of the form oci://HOST/REPOSITORY[:TAG][@DIGEST]")
	}
	path, digest, pinned := strings.Cut(strings.TrimPrefix(u.Path, "/"), "@")
	repository, tag, tagged := strings.Cut(path, ":")
	ref := ociReference{u.Host, repository, tag, digest}
	switch {
	case !repositoryPattern.MatchString(repository):
		return ociReference{}, fmt.Errorf("image reference: %q is no name of a repository", clip(repository))
	case tagged && !tagPattern.MatchString(tag):
		return ociReference{}, fmt.Errorf("image reference: %q is no tag", clip(tag))
	case pinned && !digestPattern.MatchString(digest):
		return ociReference{}, fmt.Errorf("image reference: %q is no sha256 or sha512 digest", clip(digest))
	}
	return ref, nil
}

// what is what a manifest is asked for by: the digest where there is one.
func (r ociReference) what() string { return cmp.Or(r.digest, r.tag, "latest") }

func (r ociReference) url(kind, what string) string {
	return "https://" + r.host + "/v2/" + r.repository + "/" + kind + "/" + what
}

// ociManifest is what is used of a manifest or of an index.
type ociManifest struct {
	ArtifactType string            `json:"artifactType"`
	Annotations  map[string]string `json:"annotations"`
	Config       ociDescriptor     `json:"config"`
	Layers       []ociDescriptor   `json:"layers"`
	Manifests    []ociDescriptor   `json:"manifests"` // of an index
}

type ociDescriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	ArtifactType string            `json:"artifactType"`
	Annotations  map[string]string `json:"annotations"`
	Platform     struct {
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// findBlob goes from a reference to the digest of the disk image.
func (f *fetcher) findBlob(ctx context.Context, ref ociReference, architecture string) (string, error) {
	top, err := f.manifest(ctx, ref, ref.what())
	if err != nil {
		return "", err
	}
	if len(top.Manifests) == 0 {
		return top.blob(top.Annotations["disktype"])
	}
	refusal := fmt.Errorf("the index has no disk image for %s", architecture)
	for _, candidate := range top.candidates(architecture) {
		if !digestPattern.MatchString(candidate.Digest) {
			return "", fmt.Errorf("index: %q is no sha256 or sha512 digest", clip(candidate.Digest))
		}
		m, err := f.manifest(ctx, ref, candidate.Digest)
		if err != nil {
			return "", err
		}
		digest, err := m.blob(cmp.Or(candidate.Annotations["disktype"], candidate.ArtifactType))
		if err == nil {
			return digest, nil
		}
		refusal = fmt.Errorf("manifest %s: %w", candidate.Digest, err)
	}
	return "", refusal
}

// candidates are the manifests of an index that fit the machine, the best first.
func (m ociManifest) candidates(architecture string) []ociDescriptor {
	fits := slices.DeleteFunc(slices.Clone(m.Manifests), func(d ociDescriptor) bool {
		other := d.Platform.Architecture != "" && goArchitecture(d.Platform.Architecture) != architecture
		return other || !slices.Contains(diskTypes, d.Annotations["disktype"])
	})
	slices.SortStableFunc(fits, func(a, b ociDescriptor) int {
		return slices.Index(diskTypes, a.Annotations["disktype"]) - slices.Index(diskTypes, b.Annotations["disktype"])
	})
	return fits
}

// goArchitecture takes the kernel's names, which registries hold as well as the specification's, for Go's.
func goArchitecture(name string) string {
	switch name {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return name
}

// blob returns the digest of the one layer of an artifact; kind is what else says that it is one.
func (m ociManifest) blob(kind string) (string, error) {
	switch {
	case cmp.Or(kind, m.ArtifactType) == "" && m.Config.MediaType != mediaEmpty:
		return "", errors.New("it is a container image, and no artifact with a disk image")
	case len(m.Layers) != 1:
		return "", fmt.Errorf("it has %d layers, a disk image is one", len(m.Layers))
	case !digestPattern.MatchString(m.Layers[0].Digest):
		return "", fmt.Errorf("layer: %q is no sha256 or sha512 digest", clip(m.Layers[0].Digest))
	}
	return m.Layers[0].Digest, nil
}

// manifest fetches a manifest by tag or by digest, which it must have then.
func (f *fetcher) manifest(ctx context.Context, ref ociReference, what string) (ociManifest, error) {
	address := ref.url("manifests", what)
	text, err := f.readAll(ctx, address, maxManifest)
	if err != nil {
		return ociManifest{}, err
	}
	bad := func(err error) (ociManifest, error) {
		return ociManifest{}, &DownloadError{URL: address, Status: http.StatusOK, Err: err, Fatal: true}
	}
	if algorithm, want, pinned := strings.Cut(what, ":"); pinned {
		h, err := Checksum{Algorithm: algorithm, Value: want}.hash()
		if err != nil {
			return bad(err)
		}
		h.Write(text) //nolint:errcheck // never fails
		if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
			return bad(fmt.Errorf("the manifest has the digest %s:%s, want %s", algorithm, got, what))
		}
	}
	var m ociManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return bad(fmt.Errorf("the manifest cannot be read: %w", err))
	}
	return m, nil
}
