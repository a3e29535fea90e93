package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"ironroot/storage/image/checksum"
)

// maxChecksumFile is the largest size of a checksum file in bytes. The file of a whole distribution has a few thousand
// lines.
const maxChecksumFile = 1 << 20

// ResolveChecksum finds the checksum of an image. value is the digest in hexadecimal digits, or the URL of a checksum
// file. In a checksum file, the lines count that name the last path element of the image. Among several digests, the
// one of the strongest algorithm counts. If algorithmName is empty or unknown, the number of digits selects the
// algorithm. md5 is rejected unless md5Allowed.
//
// Errors of fetching a checksum file, and of a file without a usable digest for the image, are *DownloadError,
// *SlowError or *TimeoutError. All others mean a bad request.
func ResolveChecksum(
	ctx context.Context, f Options, value, algorithmName string, image URL, md5Allowed bool,
) (checksum.Sum, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return checksum.Sum{}, errors.New("the image has no checksum")
	}
	var sum checksum.Sum
	var err error
	if isURL(value) {
		sum, err = fetchChecksum(ctx, f, value, algorithmName, image)
	} else {
		sum, err = checksum.Parse(value, algorithmName)
	}
	if err != nil {
		return checksum.Sum{}, err
	}
	if sum.Algorithm == "md5" && !md5Allowed {
		return checksum.Sum{}, errors.New("the checksum is an md5 sum, and md5 is not enabled")
	}
	_, err = sum.Hash()
	return sum, err
}

func isURL(value string) bool { return strings.Contains(value, "://") }

// fetchChecksum downloads a checksum file and finds the checksum of the image in it.
func fetchChecksum(ctx context.Context, f Options, file, algorithmName string, image URL) (checksum.Sum, error) {
	name, err := fileName(image)
	if err != nil {
		return checksum.Sum{}, err
	}
	var text []byte
	u, err := ParseURL(file)
	if err == nil {
		err = f.within(ctx, u, f.smallFileLimit(), func(ctx context.Context) (err error) {
			text, err = New(f, nil).readAll(ctx, u, maxChecksumFile)
			return err
		})
	}
	if err != nil {
		return checksum.Sum{}, fmt.Errorf("checksum of image %s: %w", name, err)
	}
	sum, err := checksum.Find(text, name, algorithmName)
	if err != nil {
		err = fmt.Errorf("find checksum of image %s in a file of %d bytes: %w", name, len(text), err)
		return checksum.Sum{}, &DownloadError{URL: u.redacted, Status: http.StatusOK, Err: err, Fatal: true}
	}
	sum.File = u.redacted
	return sum, nil
}

// smallFileTimeout limits all attempts to fetch a checksum file, and to find an image in a registry, together.
// tokenTimeout limits one request for a token.
const (
	smallFileTimeout = 5 * time.Minute
	tokenTimeout     = time.Minute
)

// smallFileLimit returns how long all attempts to fetch a small file may take together.
func (f Options) smallFileLimit() time.Duration {
	limit := cmp.Or(f.smallFile, smallFileTimeout)
	if f.MaxDuration > 0 {
		limit = min(limit, f.MaxDuration)
	}
	return limit
}

// within calls do with a context that ends after limit. It returns a TimeoutError that names u if the limit was
// reached.
func (f Options) within(
	ctx context.Context, u URL, limit time.Duration, do func(context.Context) error,
) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, ErrMaxDuration)
	defer cancel()
	err := do(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), ErrMaxDuration) {
		return &TimeoutError{URL: u.redacted, Max: limit}
	}
	return err
}

// readAll downloads a small file, with retries. It returns an error if the file has more than limit bytes.
func (f *Fetcher) readAll(ctx context.Context, u URL, limit int64) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		text, err := f.readOnce(ctx, u, limit)
		var again *InterruptedError
		if err == nil || !errors.As(err, &again) || attempt >= f.Retries {
			return text, err
		}
		if err := f.WaitRetry(ctx); err != nil {
			return nil, err
		}
	}
}

// readOnce is readAll without retries of the transfer.
func (f *Fetcher) readOnce(ctx context.Context, u URL, limit int64) ([]byte, error) {
	b, err := f.Open(ctx, u, nil)
	if err != nil {
		return nil, err
	}
	defer b.Close() //nolint:errcheck // what was needed has been read
	text, err := io.ReadAll(io.LimitReader(b.decoded(), limit+1))
	if err != nil {
		return nil, Interrupted(err)
	}
	if int64(len(text)) > limit {
		err := fmt.Errorf("the file has more than %d bytes", limit)
		return nil, &DownloadError{URL: b.URL, Status: http.StatusOK, Err: err, Fatal: true}
	}
	return text, nil
}

// fileName returns the last element of a URL's path.
func fileName(image URL) (string, error) {
	name := path.Base(image.parsed.Path)
	if name == "." || name == "/" {
		return "", fmt.Errorf("image URL %s names no file to look for in the checksum file", image)
	}
	return name, nil
}
