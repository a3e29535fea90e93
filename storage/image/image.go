package image

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Checksum is what the source file, as it lies on the server, must hash to.
type Checksum struct {
	Algorithm string // one of Algorithms
	Value     string // hexadecimal digits, in either case
	File      string // URL of the checksum file that Value was found in, without credentials and query; may be empty
}

// Source says where an image comes from and what it must be.
type Source struct {
	URLs     []string // http or https, tried in order
	Format   string   // "raw", "qcow2", ...; "" or "unknown" when nobody said
	Checksum Checksum // of the file as it is served; an image without one is refused
	Fetch    Fetch
}

// Fetch says how to talk to the server of an image or of a checksum file.
type Fetch struct {
	// Client carries proxies and TLS in its Transport. Nil stands for a plain client without a proxy. Its CheckRedirect
	// and Timeout are not used. HTTP/1.1 is faster here than HTTP/2: its bodies are read straight into the buffers that go
	// to the disk.
	Client *http.Client
	// Header goes to the host of the URL, and to no other host that it redirects to.
	Header http.Header
	// ConnectTimeout limits the time from the request to the answer's header, and then the time between two reads.
	// Zero stands for 60 s.
	ConnectTimeout time.Duration
	// Retries is how often a connection is tried again after a connection error or a status of 500 and more, and also how
	// often a whole transfer is repeated that broke off or had a wrong checksum. A transfer that broke off goes on where it
	// was if the server lets it, as often as it takes; so many connections in a row may bring next to nothing. Zero means one
	// attempt.
	Retries int
	// RetryInterval is the pause before each of them.
	RetryInterval time.Duration
	// MaxDuration limits all attempts together; 0 means no limit. Checksum files, manifests and tokens have limits of
	// their own.
	MaxDuration time.Duration
	// MinRate is the lowest rate, in bytes per second, at which a server may send; 0 accepts any rate. It is measured
	// over two minutes, or over twice ConnectTimeout if that is longer.
	MinRate int64
	// Secret, when set, is told of a token that a registry gave, before it is used.
	Secret func(token string)

	registry   *registrySession // of an Artifact
	rateWindow time.Duration    // 0 = as MinRate describes
	smallFile  time.Duration    // 0 = smallFileTimeout, and tokenTimeout for tokens
}

// Options are the options of a Write.
type Options struct {
	Progress *Progress    // may be nil
	Log      *slog.Logger // may be nil
	// PermittedFormats lists the formats that an inspected image may have. nil permits every format that can be
	// written. An empty list permits no image, not even one that is declared as raw. Compressed images require raw in
	// the list.
	PermittedFormats []string
	// SkipFormatInspection disables the comparison of the declared with the detected format, the checks of gpt images
	// and those of the end of a file. References of an image to other files are refused nevertheless.
	SkipFormatInspection bool
}

// Report describes what Write has written.
type Report struct {
	URL      string // where the image came from, without credentials and query
	Format   string // "raw" or "qcow2"; "gpt" and "iso" are copied as raw and reported by their name
	Packed   string // "gzip", "zstd", "xz", "bzip2" or "lz4" where Format came packed
	Bytes    int64  // length of the file on the server
	Written  int64  // bytes of content written to the device
	Size     int64  // virtual size of the image: how much of the device it covers
	Resumed  int    // connections that went on where another had broken off
	Checksum Checksum
	Duration time.Duration
}

// Write streams an image to a block device, or to a file of fixed size, and returns after everything has reached the
// medium.
//
// Errors are or wrap *fetch.DownloadError, *fetch.TimeoutError (MaxDuration), *fetch.SlowError (MinRate),
// *checksum.MismatchError, *FormatError, *device.TooSmallError, *device.WriteError or the error of ctx. After an
// error the first and the last MiB of the device read as zeros, unless the device could not be opened or written, or
// the image was refused by the first probe, for its format or its size: then the device was not changed.
func Write(ctx context.Context, device string, src Source, o Options) (Report, error) {
	w, err := newWriter(device, src, o)
	if err != nil {
		return Report{}, err
	}
	begin := time.Now()
	w.progress.begin()
	report, err := w.write(ctx)
	if err != nil {
		w.progress.enter(PhaseFailed)
		return Report{}, err
	}
	report.Duration = time.Since(begin)
	w.progress.enter(PhaseDone)
	w.log.Info("image written", "url", report.URL, "device", device, "format", report.Format,
		"bytes", report.Bytes, "written", report.Written, "duration", report.Duration)
	return report, nil
}
