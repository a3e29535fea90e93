package fetch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"ironroot/storage/image/checksum"
)

// Artifact is the disk image behind an oci:// reference.
type Artifact struct {
	URL      URL          // of the blob
	Checksum checksum.Sum // the blob's digest
	// Fetch contains the options of ResolveOCI and the authorization that the registry demands. A token that expires
	// during the download is replaced.
	Fetch Options
}

// maxManifest is the largest size of a manifest in bytes: the distribution specification has registries accept 4 MiB.
const maxManifest = 4 << 20

const (
	mediaIndex    = string(types.OCIImageIndex)
	mediaManifest = string(types.OCIManifestSchema1)
)

// diskTypes are the values of the annotation "disktype", in the order of preference: formats that are copied come
// first, artifacts without the annotation last.
var diskTypes = []string{"raw", "applehv", "qcow2", "qemu", ""}

// ResolveOCI finds the disk image that a reference of the form oci://HOST[:PORT]/REPOSITORY[:TAG][@DIGEST] means, by
// the OCI distribution and image specifications 1.1, always by https: the layer of an artifact of one layer. Where
// the reference leads to an index, the artifact for the machine's architecture (as Go calls it) counts, and among
// those the annotation "disktype" decides, as in Ironic. f.Header may hold an Authorization: a Bearer token is sent
// to the registry as it is, basic credentials are exchanged for a token where the registry wants one.
//
// The errors of the registry are *DownloadError, *SlowError and *TimeoutError; all others mean a bad request.
func ResolveOCI(ctx context.Context, f Options, image, architecture string) (Artifact, error) {
	ref, err := parseReference(image)
	if err != nil {
		return Artifact{}, err
	}
	f.registry = newRegistrySession(f, ref.repository)
	f.Header = f.Header.Clone()
	f.Header.Del("Authorization")
	accepting := f
	accepting.Header = http.Header{"Accept": {mediaIndex + ", " + mediaManifest}}
	fetcher := New(accepting, nil)
	var digest v1.Hash
	err = f.within(ctx, ref.url("manifests", ref.version()), f.smallFileLimit(), func(ctx context.Context) (err error) {
		digest, err = fetcher.findBlob(ctx, ref, architecture)
		return err
	})
	if err != nil {
		return Artifact{}, fmt.Errorf("%s: %w", RedactURL(image), err)
	}
	sum := checksum.Sum{Algorithm: digest.Algorithm, Value: digest.Hex}
	return Artifact{URL: ref.url("blobs", digest.String()), Checksum: sum, Fetch: f}, nil
}

// ociReference is a parsed reference.
type ociReference struct{ host, repository, tag, digest string }

// parseReference parses a reference by the grammar of the distribution project. The host is mandatory. Errors do not
// quote what could be a secret.
func parseReference(text string) (ociReference, error) {
	bad := errors.New("the image reference is not of the form oci://HOST/REPOSITORY[:TAG][@DIGEST]")
	u, err := url.Parse(text)
	if err != nil || !strings.EqualFold(u.Scheme, "oci") || u.Host == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return ociReference{}, bad
	}
	parsed, err := reference.Parse(u.Host + u.Path)
	if err != nil {
		return ociReference{}, fmt.Errorf("%w: %w", bad, err)
	}
	named, ok := parsed.(reference.Named)
	if !ok || reference.Domain(named) != u.Host { // the grammar reads what is not a host as a part of the repository
		return ociReference{}, bad
	}
	ref := ociReference{host: u.Host, repository: reference.Path(named)}
	if ref.url("manifests", ref.version()).parsed == nil {
		return ociReference{}, bad
	}
	if tagged, ok := named.(reference.Tagged); ok {
		ref.tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		ref.digest = digested.Digest().String()
		if _, err := v1.NewHash(ref.digest); err != nil { // there are more algorithms in the grammar
			return ociReference{},
				fmt.Errorf("image reference: the digest of %d characters is not a sha256 or sha512 digest",
					len(ref.digest))
		}
	}
	return ref, nil
}

// version returns the digest or the tag by which the manifest is requested.
func (r ociReference) version() string { return cmp.Or(r.digest, r.tag, "latest") }

// url returns the URL of a manifest or a blob. It is valid: parseReference has checked it.
func (r ociReference) url(kind, version string) URL {
	u, _ := ParseURL("https://" + r.host + "/v2/" + r.repository + "/" + kind + "/" + version)
	return u
}

// findBlob returns the digest of the disk image of a reference.
func (f *Fetcher) findBlob(ctx context.Context, ref ociReference, architecture string) (v1.Hash, error) {
	top, list, err := f.manifest(ctx, ref, ref.version())
	if err != nil {
		return v1.Hash{}, err
	}
	if len(list) == 0 {
		return blobOf(top, top.Annotations["disktype"])
	}
	refusal := fmt.Errorf("the index has no disk image for %s, only %s", architecture, describe(list))
	for _, candidate := range candidates(list, architecture) {
		m, _, err := f.manifest(ctx, ref, candidate.Digest.String())
		if err != nil {
			return v1.Hash{}, err
		}
		digest, err := blobOf(m, cmp.Or(candidate.Annotations["disktype"], candidate.ArtifactType))
		if err == nil {
			return digest, nil
		}
		refusal = fmt.Errorf("manifest %s: %w", candidate.Digest, err)
	}
	return v1.Hash{}, refusal
}

// candidates returns the manifests of an index for the architecture, the best first.
func candidates(list []v1.Descriptor, architecture string) []v1.Descriptor {
	fits := slices.DeleteFunc(slices.Clone(list), func(d v1.Descriptor) bool {
		other := d.Platform != nil && d.Platform.Architecture != "" &&
			goArchitecture(d.Platform.Architecture) != architecture
		return other || d.Digest == v1.Hash{} || !slices.Contains(diskTypes, d.Annotations["disktype"])
	})
	slices.SortStableFunc(fits, func(a, b v1.Descriptor) int {
		return slices.Index(diskTypes, a.Annotations["disktype"]) - slices.Index(diskTypes, b.Annotations["disktype"])
	})
	return fits
}

// describe lists the architectures and disk types of an index for an error.
func describe(list []v1.Descriptor) string {
	const most = 8
	var found []string
	for _, d := range list[:min(len(list), most)] {
		architecture := ""
		if d.Platform != nil {
			architecture = d.Platform.Architecture
		}
		found = append(found, fmt.Sprintf("%.20q with disktype %.20q", architecture, d.Annotations["disktype"]))
	}
	if len(list) > most {
		found = append(found, fmt.Sprintf("%d more", len(list)-most))
	}
	return strings.Join(found, ", ")
}

// goArchitecture returns Go's name of an architecture. Registries contain the kernel's names as well as the
// specification's.
func goArchitecture(name string) string {
	switch name {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return name
}

// blobOf returns the digest of the layer of an artifact. kind is its artifact type or disk type as the index states
// it. Without an artifact type, the type of the configuration counts, which older clients set to one of their own.
func blobOf(m *v1.Manifest, kind string) (v1.Hash, error) {
	kind = cmp.Or(kind, m.ArtifactType, string(m.Config.MediaType))
	switch {
	case m.MediaType.IsIndex():
		return v1.Hash{}, errors.New("it is an index without manifests or in another index")
	case kind == "":
		return v1.Hash{}, errors.New("it states neither an artifact type nor the type of its configuration")
	case kind == string(types.OCIConfigJSON) || kind == string(types.DockerConfigJSON):
		return v1.Hash{}, errors.New("it is a container image, not an artifact with a disk image")
	case len(m.Layers) != 1:
		return v1.Hash{}, fmt.Errorf("it is an artifact of type %.80q with %d layers, want 1", kind, len(m.Layers))
	case m.Layers[0].Digest == v1.Hash{}: // all other digests were checked
		return v1.Hash{}, errors.New("its layer has no digest")
	}
	return m.Layers[0].Digest, nil
}

// manifest downloads a manifest, or an index with its list, by tag or by digest, which is checked.
func (f *Fetcher) manifest(ctx context.Context, ref ociReference, version string) (
	*v1.Manifest, []v1.Descriptor, error,
) {
	address := ref.url("manifests", version)
	text, err := f.readAll(ctx, address, maxManifest)
	if err != nil {
		return nil, nil, err
	}
	m, list, err := parseManifest(text, version)
	if err != nil {
		return nil, nil, &DownloadError{URL: address.redacted, Status: http.StatusOK, Err: err, Fatal: true}
	}
	return m, list, nil
}

// parseManifest parses a manifest, or an index with its list. If version is a digest, it is checked.
func parseManifest(text []byte, version string) (*v1.Manifest, []v1.Descriptor, error) {
	if strings.Contains(version, ":") {
		if err := checkDigest(text, version); err != nil {
			return nil, nil, err
		}
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil { // it may quote the file
		return nil, nil, fmt.Errorf("the index of %d bytes cannot be read: "+
			"it is not JSON, or a digest in it is not a sha256 or sha512 digest", len(text))
	}
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, nil, fmt.Errorf("the manifest of %d bytes cannot be read: "+
			"it is not JSON, or a digest in it is not a sha256 or sha512 digest", len(text))
	}
	return m, index.Manifests, nil
}

// checkDigest compares a manifest with its digest.
func checkDigest(text []byte, digest string) error {
	want, err := v1.NewHash(digest)
	if err != nil {
		return fmt.Errorf("the digest of %d characters is not a sha256 or sha512 digest", len(digest))
	}
	h, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return err
	}
	h.Write(text) //nolint:errcheck // never fails
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want.Hex {
		return fmt.Errorf("the manifest has the digest %s:%s, want %s", want.Algorithm, got, digest)
	}
	return nil
}
