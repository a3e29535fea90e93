package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"ironroot/internal/confine"
	"ironroot/storage/image/fetch"
	"ironroot/storage/image/unpack"
	"ironroot/storage/layer"
	"ironroot/storage/sysfs"
)

// Directories in the scratch space.
const (
	rootDir   = "root"
	layoutDir = "image"
)

// Bundle is an image in scratch space. It is not safe for concurrent use.
type Bundle struct {
	image   *Image
	scratch *scratch
	system  sysfs.Root
	log     *slog.Logger
	kept    bool  // as an OCI layout, too
	arrived int64 // bytes of the compressed layers
	// inUse is set if a process could not be ended. It can still read and write the scratch space.
	inUse atomic.Bool
}

// Prepare downloads and unpacks the layers of an image. It verifies size and digest of each layer, compressed and
// unpacked. The scratch space is memory, if the layers probably fit. If they do not, it is the end of o.Disk. If the
// scratch space runs full, the download starts again in a larger one on o.Disk, at most diskAttempts times. After an
// error nothing is left. Errors about too little space wrap ErrNoSpace.
func Prepare(ctx context.Context, image *Image, o Options) (*Bundle, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b, err := prepare(ctx, image, o)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image.Name, err)
	}
	return b, nil
}

func prepare(ctx context.Context, image *Image, o Options) (*Bundle, error) {
	need := spaceFor(image.remote, o.KeepImage)
	space := demand{least: need, want: need}
	s, err := memoryScratch(o.System, need)
	if err != nil && !errors.Is(err, ErrNoSpace) {
		return nil, err
	}
	for attempt := 0; ; attempt++ {
		if err == nil {
			var b *Bundle
			if b, err = fill(ctx, image, o, s); err == nil {
				return b, nil
			}
			var full *fullError
			if !errors.As(err, &full) {
				return nil, err
			}
			space = full.next(space.want)
		}
		if s, err = nextScratch(ctx, image.Name, o, space, attempt, err); err != nil {
			return nil, err
		}
	}
}

// nextScratch reserves scratch space at the end of o.Disk after memory, or smaller space on the disk, did not suffice.
// attempt is the number of downloads to the disk so far, and cause says what did not suffice.
func nextScratch(
	ctx context.Context, image string, o Options, space demand, attempt int, cause error,
) (*scratch, error) {
	switch {
	case o.Disk == "":
		return nil, cause
	case attempt == diskAttempts:
		return nil, fmt.Errorf("gave up after %d attempts on %s: %w", attempt, o.Disk, cause)
	}
	message := "container image does not fit into memory"
	if attempt > 0 {
		message = "container image does not fit into the scratch space"
	}
	o.Log.Info(message, "image", image, "disk", o.Disk, "want_bytes", space.want, "err", cause)
	s, err := diskScratch(ctx, o.System, o.Disk, space)
	var full *fullError
	if err != nil && errors.As(cause, &full) {
		err = fmt.Errorf("%w (after %w)", err, cause)
	}
	return s, err
}

// Layers are expected to unpack to unpackedFactor times their size. An ordinary file system takes less.
const (
	unpackedFactor = 3
	spaceMargin    = 64 << 20
)

// diskAttempts limits how often an image is downloaded to a disk. Tests change it.
var diskAttempts = 2

// spaceFor returns the number of bytes that an image is expected to need.
func spaceFor(c *fetch.Container, keep bool) int64 {
	need := int64(spaceMargin)
	for _, l := range c.Layers { // at most 2^50 bytes
		need += l.Size
		if l.MediaType != types.OCIUncompressedLayer && l.MediaType != types.DockerUncompressedLayer {
			need += (unpackedFactor - 1) * l.Size
		}
		if keep {
			need += l.Size
		}
	}
	return need
}

// fill downloads an image into scratch space, which it frees after an error. The error is a *fullError if the scratch
// space was too small and is free.
func fill(ctx context.Context, image *Image, o Options, s *scratch) (*Bundle, error) {
	b := &Bundle{image: image, scratch: s, system: o.System, log: o.Log, kept: o.KeepImage}
	o.Log.Info("container image download started", "image", image.Name, "digest", image.Digest,
		"layers", len(image.remote.Layers), "bytes", image.remote.Size(), "scratch", s.kind())
	err := b.download(ctx, o)
	if err == nil {
		o.Log.Info("container image unpacked", "image", image.Name)
		return b, nil
	}
	var full *fullError
	if isFull(err) {
		full = &fullError{place: s.kind(), size: s.size, arrived: b.arrived, total: image.remote.Size(), err: err}
		full.used, err = s.used()
	}
	if err = errors.Join(err, s.free(context.WithoutCancel(ctx))); err != nil {
		if full != nil {
			err = errors.Join(full.err, err)
		}
		return nil, err
	}
	return nil, full
}

// isFull reports whether an error is about scratch space that has no free space.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EDQUOT)
}

// fullError is the error about scratch space that was too small for an image. It wraps ErrNoSpace.
type fullError struct {
	place          string
	size, used     int64 // bytes of the scratch space
	arrived, total int64 // bytes of the compressed layers
	err            error
}

func (e *fullError) Error() string {
	return fmt.Sprintf("%v in the scratch space (%s, %d bytes) after %d of %d bytes of the layers: %v", ErrNoSpace,
		e.place, e.size, e.arrived, e.total, e.err)
}

func (e *fullError) Unwrap() []error { return []error{ErrNoSpace, e.err} }

// demand is a number of bytes for files in scratch space.
type demand struct{ least, want int64 }

// next returns the demand after scratch space for want bytes of files was full: what the image needs if the layers that
// have not arrived unpack as those that have, and a quarter of that, but two to four times what was full.
func (e *fullError) next(want int64) demand {
	full := max(want, e.used)
	ratio := 1.25 * float64(e.total) / float64(max(1, e.arrived))
	estimate := min(ratio*float64(e.used), 4*float64(full))
	return demand{least: full + 1, want: max(2*full, int64(estimate))}
}

// Reserved returns the number of bytes at the end of Options.Disk that are in use until Close: 0 if the image is in
// memory.
func (b *Bundle) Reserved() int64 { return b.scratch.reserved }

// Close removes the image. Scratch space on a disk is overwritten with zeros, which are read back. It fails and leaves
// everything as it is if a program of the image still runs.
func (b *Bundle) Close(ctx context.Context) error {
	if b.inUse.Load() {
		return fmt.Errorf("remove image %s: scratch space (%s, %d bytes) stays reserved: program %w", b.image.Name,
			b.scratch.kind(), b.scratch.size, confine.ErrStillRunning)
	}
	if err := b.scratch.free(ctx); err != nil {
		return fmt.Errorf("remove image %s: %w", b.image.Name, err)
	}
	return nil
}

// download downloads all layers, one after the other.
func (b *Bundle) download(ctx context.Context, o Options) (err error) {
	c := b.image.remote
	if limit := c.Fetch.MaxDuration; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fetch.ErrMaxDuration)
		defer cancel()
	}
	root := filepath.Join(b.scratch.dir, rootDir)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if b.kept {
		if err := b.writeLayout(); err != nil {
			return fmt.Errorf("store the image: %w", err)
		}
	}
	u, err := layer.NewUnpacker(root, layer.DefaultLimits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.Close()) }()
	total := c.Size()
	for i, l := range c.Layers {
		if err := b.layer(ctx, u, l, c.Config.RootFS.DiffIDs[i], &download{b, o, total}); err != nil {
			return fmt.Errorf("layer %d of %d, %s: %w", i+1, len(c.Layers), l.Digest, err)
		}
	}
	return nil
}

// blob returns the name of a file of the OCI layout.
func (b *Bundle) blob(digest v1.Hash) string {
	return filepath.Join(b.scratch.dir, layoutDir, "blobs", digest.Algorithm, digest.Hex)
}

// writeLayout writes the files of an OCI layout (OCI image specification 1.1, "Image Layout") other than the layers.
func (b *Bundle) writeLayout() error {
	c := b.image.remote
	algorithms := []string{c.Digest.Algorithm, c.ConfigDescriptor.Digest.Algorithm}
	for _, l := range c.Layers {
		algorithms = append(algorithms, l.Digest.Algorithm)
	}
	for _, algorithm := range algorithms {
		dir := filepath.Join(b.scratch.dir, layoutDir, "blobs", algorithm)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: types.MediaType(c.MediaType), Size: int64(len(c.Manifest)), Digest: c.Digest,
		}},
	})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		b.blob(c.Digest):                                      c.Manifest,
		b.blob(c.ConfigDescriptor.Digest):                     c.ConfigFile,
		filepath.Join(b.scratch.dir, layoutDir, "index.json"): index,
		filepath.Join(b.scratch.dir, layoutDir, "oci-layout"): []byte(`{"imageLayoutVersion": "1.0.0"}`),
	} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// download counts the bytes of the layers of a bundle.
type download struct {
	bundle  *Bundle
	options Options
	total   int64
}

// Add implements [fetch.Counter].
func (d *download) Add(n int64) int64 {
	if d.bundle.arrived += n; d.options.Progress != nil {
		d.options.Progress.SetPhase("download", 0, d.bundle.arrived, d.total)
	}
	return d.bundle.arrived
}

// layer downloads, verifies and unpacks a layer.
func (b *Bundle) layer(
	ctx context.Context, u *layer.Unpacker, d v1.Descriptor, diffID v1.Hash, arrived fetch.Counter,
) (err error) {
	c := b.image.remote
	stream, err := fetch.New(c.Fetch, b.log).OpenStream(ctx, c.BlobURL(d.Digest), nil)
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // what was needed has been read
	stream.Arrived = arrived
	if stream.Total >= 0 && stream.Total != d.Size {
		return fmt.Errorf("the registry sends %d bytes, the manifest announces %d", stream.Total, d.Size)
	}
	packed, err := newVerifier(stream, d.Digest, d.Size)
	if err != nil {
		return err
	}
	var source io.Reader = packed
	if b.kept {
		f, err := os.OpenFile(b.blob(d.Digest), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		source = io.TeeReader(packed, f)
	}
	if err := unpackLayer(ctx, u, source, diffID); err != nil {
		if isFull(err) {
			return err
		}
		// An error of the file explains the error of its content, and is returned instead.
		if _, fileErr := io.Copy(io.Discard, source); fileErr != nil {
			return fileErr
		}
		if fileErr := packed.verify(); fileErr != nil {
			return fileErr
		}
		return err
	}
	if _, err := io.Copy(io.Discard, source); err != nil { // behind the compressed archive
		return err
	}
	return packed.verify()
}

// unpackLayer unpacks a layer and verifies the digest of its archive.
func unpackLayer(ctx context.Context, u *layer.Unpacker, source io.Reader, diffID v1.Hash) error {
	content, closeContent, err := decompress(source)
	if err != nil {
		return err
	}
	defer closeContent()
	plain, err := newVerifier(content, diffID, -1)
	if err != nil {
		return err
	}
	if err := u.Unpack(ctx, plain); err != nil {
		return err
	}
	// Padding behind the end of the archive is a part of the digest.
	n, err := io.Copy(io.Discard, io.LimitReader(plain, maxPadding+1))
	if err != nil {
		return err
	}
	if n > maxPadding {
		return fmt.Errorf("more than %d bytes behind the end of the archive", int64(maxPadding))
	}
	return plain.verify()
}

const maxPadding = 64 << 20

// decompress returns the archive of a layer. It detects the compression by the first bytes, as container engines do.
func decompress(source io.Reader) (io.Reader, func(), error) {
	head := make([]byte, 8) // of a skippable zstd frame; others need less
	n, err := io.ReadFull(source, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, err
	}
	whole := io.MultiReader(bytes.NewReader(head[:n]), source)
	for _, f := range unpack.Formats {
		if (f.Name == "gzip" || f.Name == "zstd") && f.Detect(head[:n]) {
			r, err := f.NewReader(whole, unpack.MinMemory)
			if err != nil {
				return nil, nil, err
			}
			return r, r.Close, nil
		}
	}
	return whole, func() {}, nil
}

// verifier reads a file and checks size and digest.
type verifier struct {
	r    io.Reader
	want v1.Hash
	size int64 // -1 if unknown
	sum  hash.Hash
	n    int64
}

func newVerifier(r io.Reader, want v1.Hash, size int64) (*verifier, error) {
	sum, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return nil, err
	}
	return &verifier{r: r, want: want, size: size, sum: sum}, nil
}

// Read fails as soon as there are more bytes than announced.
func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.sum.Write(p[:n]) //nolint:errcheck // never fails
	if v.n += int64(n); v.size >= 0 && v.n > v.size {
		return 0, fmt.Errorf("got more than the %d bytes that the manifest announces", v.size)
	}
	return n, err
}

// verify checks size and digest of what was read.
func (v *verifier) verify() error {
	if v.size >= 0 && v.n != v.size {
		return fmt.Errorf("got %d bytes, want %d", v.n, v.size)
	}
	if got := fmt.Sprintf("%x", v.sum.Sum(nil)); got != v.want.Hex {
		return fmt.Errorf("got the digest %s:%s, want %s", v.want.Algorithm, got, v.want)
	}
	return nil
}
