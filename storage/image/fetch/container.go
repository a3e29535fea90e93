package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Limits of a container image.
const (
	maxImageConfig = 8 << 20 // bytes
	maxLayers      = 1000
	maxLayerSize   = 1 << 40 // bytes, compressed
)

// ErrReference is the cause of an error about a reference that cannot mean an image.
var ErrReference = errors.New("invalid image reference")

// Container is a container image in a registry.
type Container struct {
	// Name is the reference without its scheme.
	Name string
	// MediaType, Digest and Manifest belong to the manifest for the architecture.
	MediaType string
	Digest    v1.Hash
	Manifest  []byte
	// ConfigDescriptor and Config are the configuration, verified.
	ConfigDescriptor v1.Descriptor
	ConfigFile       []byte
	Config           *v1.ConfigFile
	// Layers are the layers, the lowest first. Config.RootFS.DiffIDs has as many elements.
	Layers []v1.Descriptor
	// Fetch contains the options of ResolveContainer and the authorization that the registry demands.
	Fetch Options

	reference ociReference
}

// BlobURL returns the URL of a layer.
func (c *Container) BlobURL(digest v1.Hash) URL { return c.reference.url("blobs", digest.String()) }

// Size returns the number of bytes of all layers, compressed.
func (c *Container) Size() int64 {
	var sum int64
	for _, l := range c.Layers { // at most maxLayers*maxLayerSize
		sum += l.Size
	}
	return sum
}

// ResolveContainer reads the manifest and the configuration of a container image, always by https. The image is
// HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]. Where the reference leads to an index, the first image for Linux on the
// architecture (as Go calls it) is used. f.Header may have an Authorization, see ResolveOCI.
//
// The errors of the registry are *DownloadError, *SlowError and *TimeoutError; all others mean a bad request.
func ResolveContainer(ctx context.Context, f Options, image, architecture string) (*Container, error) {
	ref, err := parseContainerReference(image)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReference, err)
	}
	f.registry = newRegistrySession(f, ref.repository)
	f.Header = f.Header.Clone()
	f.Header.Del("Authorization")
	c := &Container{Name: image, Fetch: f, reference: ref}
	err = f.within(ctx, ref.url("manifests", ref.version()), f.smallFileLimit(), func(ctx context.Context) error {
		return c.resolve(ctx, architecture)
	})
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	return c, nil
}

// parseContainerReference parses a reference without a scheme.
func parseContainerReference(image string) (ociReference, error) {
	if strings.Contains(image, "://") {
		return ociReference{}, errors.New("the transport is neither docker:// nor oci://")
	}
	host, _, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return ociReference{}, errors.New("it does not begin with the host of a registry")
	}
	ref, err := parseReference("oci://" + image)
	if err != nil {
		return ociReference{}, err
	}
	// Docker's registry has a host of its own for requests, and a prefix for official images.
	if host := strings.ToLower(ref.host); host == "docker.io" || host == "index.docker.io" {
		ref.host = "registry-1.docker.io"
		if !strings.Contains(ref.repository, "/") {
			ref.repository = "library/" + ref.repository
		}
	}
	return ref, nil
}

// containerAccept are the media types of manifests and indexes.
var containerAccept = strings.Join([]string{
	mediaManifest, mediaIndex, string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ", ")

// resolve reads manifest and configuration.
func (c *Container) resolve(ctx context.Context, architecture string) error {
	accepting := c.Fetch
	accepting.Header = http.Header{"Accept": {containerAccept}}
	manifests := New(accepting, nil)
	m, err := c.readManifest(ctx, manifests, c.reference.version())
	if err != nil {
		return err
	}
	if m.index != nil {
		i := slices.IndexFunc(m.index, func(d v1.Descriptor) bool { return isFor(d.Platform, architecture) })
		if i < 0 {
			return fmt.Errorf("the index has no image for linux on %s", architecture)
		}
		if m, err = c.readManifest(ctx, manifests, m.index[i].Digest.String()); err != nil {
			return err
		}
		if m.index != nil {
			return errors.New("the index leads to another index")
		}
	}
	if err := checkContainer(m.manifest); err != nil {
		return err
	}
	c.MediaType, c.Digest, c.Manifest = m.media, m.digest, m.text
	c.ConfigDescriptor, c.Layers = m.manifest.Config, m.manifest.Layers
	if err := c.readConfig(ctx); err != nil {
		return err
	}
	if got := goArchitecture(c.Config.Architecture); got != architecture || c.Config.OS != "linux" {
		return fmt.Errorf("the image is for %q on %q, want linux on %s", c.Config.OS, got, architecture)
	}
	return nil
}

// isFor reports whether a platform is Linux on the architecture.
func isFor(p *v1.Platform, architecture string) bool {
	return p != nil && p.OS == "linux" && goArchitecture(p.Architecture) == architecture
}

// containerManifest is a manifest or an index.
type containerManifest struct {
	manifest *v1.Manifest
	index    []v1.Descriptor // nil if it is no index
	text     []byte
	digest   v1.Hash
	media    string
}

// readManifest reads and verifies a manifest or an index.
func (c *Container) readManifest(ctx context.Context, f *Fetcher, version string) (*containerManifest, error) {
	address := c.reference.url("manifests", version)
	text, err := f.readAll(ctx, address, maxManifest)
	if err != nil {
		return nil, err
	}
	m, list, err := parseManifest(text, version)
	if err != nil {
		return nil, &DownloadError{URL: address.redacted, Status: http.StatusOK, Err: err, Fatal: true}
	}
	digest, _, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	media := string(m.MediaType)
	if media == "" { // it is optional in a manifest of OCI
		media = mediaManifest
	}
	return &containerManifest{manifest: m, index: list, text: text, digest: digest, media: media}, nil
}

// layerTypes are the media types of layers that can be unpacked.
var layerTypes = []types.MediaType{
	types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer,
}

// checkContainer checks the sizes and types of an image's files.
func checkContainer(m *v1.Manifest) error {
	switch {
	case m.Config.MediaType != types.OCIConfigJSON && m.Config.MediaType != types.DockerConfigJSON:
		return fmt.Errorf("it is not a container image: its configuration has the type %.80q", m.Config.MediaType)
	case m.Config.Digest == v1.Hash{}:
		return errors.New("the configuration has no digest")
	case m.Config.Size <= 0 || m.Config.Size > maxImageConfig:
		return fmt.Errorf("the configuration has %d bytes, want 1 to %d", m.Config.Size, maxImageConfig)
	case len(m.Layers) == 0 || len(m.Layers) > maxLayers:
		return fmt.Errorf("the image has %d layers, want 1 to %d", len(m.Layers), maxLayers)
	}
	for i, l := range m.Layers {
		switch {
		case !slices.Contains(layerTypes, l.MediaType):
			return fmt.Errorf("layer %d has the unknown type %.80q", i, l.MediaType)
		case l.Digest == v1.Hash{}:
			return fmt.Errorf("layer %d has no digest", i)
		case l.Size < 0 || l.Size > maxLayerSize:
			return fmt.Errorf("layer %d has %d bytes, want 0 to %d", i, l.Size, int64(maxLayerSize))
		}
	}
	return nil
}

// readConfig reads and verifies the configuration.
func (c *Container) readConfig(ctx context.Context) error {
	address, want := c.BlobURL(c.ConfigDescriptor.Digest), c.ConfigDescriptor
	text, err := New(c.Fetch, nil).readAll(ctx, address, maxImageConfig)
	if err != nil {
		return err
	}
	fail := func(err error) error {
		return &DownloadError{URL: address.redacted, Status: http.StatusOK, Err: err, Fatal: true}
	}
	if int64(len(text)) != want.Size {
		return fail(fmt.Errorf("the configuration has %d bytes, want %d", len(text), want.Size))
	}
	if err := checkDigest(text, want.Digest.String()); err != nil {
		return fail(fmt.Errorf("configuration: %w", err))
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil { // it may quote the file
		return fail(fmt.Errorf("the configuration of %d bytes cannot be read", len(text)))
	}
	if got := len(config.RootFS.DiffIDs); got != len(c.Layers) {
		return fail(fmt.Errorf("the configuration describes %d layers, the manifest %d", got, len(c.Layers)))
	}
	c.ConfigFile, c.Config = text, config
	return nil
}
