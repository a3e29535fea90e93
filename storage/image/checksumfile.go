package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"
)

// maxChecksumFile limits what is read of a checksum file: those of whole distributions have a few thousand lines.
const maxChecksumFile = 1 << 20

// ResolveChecksum finds the checksum of an image. value is the digits themselves or the URL of a checksum file, in which
// the line that names the last path element of imageURL counts. algorithm may be empty, or one that is not known here:
// then the number of digits decides. md5 is refused unless md5Allowed.
//
// The errors of fetching a checksum file are *DownloadError and *TimeoutError; all others mean a bad request.
func ResolveChecksum(ctx context.Context, f Fetch, value, algorithm, imageURL string, md5Allowed bool) (Checksum, error) {
	value, algorithm = strings.TrimSpace(value), strings.ToLower(strings.TrimSpace(algorithm))
	if value == "" {
		return Checksum{}, errors.New("the image has no checksum")
	}
	if isURL(value) {
		var err error
		if value, err = fetchChecksum(ctx, f, value, imageURL); err != nil {
			return Checksum{}, err
		}
	}
	if !isKnown(algorithm) {
		var err error
		if algorithm, err = algorithmOf(value); err != nil {
			return Checksum{}, err
		}
	}
	if algorithm == "md5" && !md5Allowed {
		return Checksum{}, fmt.Errorf("checksum %q is an md5 sum, and md5 is not enabled", clip(value))
	}
	sum := Checksum{Algorithm: algorithm, Value: value}
	_, err := sum.hash()
	return sum, err
}

func isKnown(algorithm string) bool {
	for _, a := range algorithms {
		if a.name == algorithm {
			return true
		}
	}
	return false
}

func isURL(value string) bool { return strings.Contains(value, "://") }

// fetchChecksum fetches a checksum file, which is as likely to fail for a while as the image itself.
func fetchChecksum(ctx context.Context, f Fetch, fileURL, imageURL string) (string, error) {
	name, err := fileName(imageURL)
	if err != nil {
		return "", err
	}
	var text []byte
	err = f.within(ctx, fileURL, func(ctx context.Context) (err error) {
		text, err = newFetcher(f, nil, nil).readAll(ctx, fileURL, maxChecksumFile)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("checksum of image %s: %w", name, err)
	}
	value, err := findChecksum(text, name)
	if err != nil {
		return "", fmt.Errorf("checksum file %s: %w", redactURL(fileURL), err)
	}
	return value, nil
}

// within calls do with a context that ends after MaxDuration, and then returns a TimeoutError on what was fetched.
func (f Fetch) within(ctx context.Context, rawURL string, do func(context.Context) error) error {
	limited := ctx
	if f.MaxDuration > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, f.MaxDuration, errMaxDuration)
		defer cancel()
	}
	err := do(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errMaxDuration) {
		return &TimeoutError{URL: redactURL(rawURL), Max: f.MaxDuration}
	}
	return err
}

// readAll fetches a small file; one of more than limit bytes is an error.
func (f *fetcher) readAll(ctx context.Context, rawURL string, limit int64) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		text, err := f.readOnce(ctx, rawURL, limit)
		var again *transferError
		if err == nil || !errors.As(err, &again) || attempt >= f.Retries {
			return text, err
		}
		if err := pause(ctx, f.RetryInterval); err != nil {
			return nil, err
		}
	}
}

func (f *fetcher) readOnce(ctx context.Context, rawURL string, limit int64) ([]byte, error) {
	b, err := f.open(ctx, rawURL, nil)
	if err != nil {
		return nil, err
	}
	defer b.Close() //nolint:errcheck // what was needed has been read
	text, err := io.ReadAll(io.LimitReader(b, limit+1))
	if err != nil {
		return nil, broken(err)
	}
	if int64(len(text)) > limit {
		return nil, &DownloadError{URL: b.url, Status: 200, Err: fmt.Errorf("the file has more than %d bytes", limit), Fatal: true}
	}
	return text, nil
}

// fileName returns the last element of a URL's path.
func fileName(imageURL string) (string, error) {
	u, err := url.Parse(imageURL)
	if err != nil {
		return "", errors.New("the image's URL cannot be read")
	}
	name := path.Base(u.Path)
	if name == "." || name == "/" {
		return "", fmt.Errorf("image URL %s names no file to look for in the checksum file", redactURL(imageURL))
	}
	return name, nil
}

// findChecksum finds the digits that belong to a file. It knows these forms:
//
//	DIGITS                         alone in the file
//	DIGITS  name   DIGITS *name    as md5sum and its kin write them, in text and in binary mode
//	SHA256 (name) = DIGITS         as BSD's and OpenSSL's tools write them
func findChecksum(text []byte, name string) (string, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return "", errors.New("the file is empty")
	}
	if !bytes.ContainsAny(text, " \t\r\n") {
		if _, err := algorithmOf(string(text)); err != nil {
			return "", err
		}
		return string(text), nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxChecksumFile+1)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "#") || !namesFile(line, name) {
			continue
		}
		fields := strings.Fields(line)
		for _, digits := range []string{fields[0], fields[len(fields)-1]} {
			if _, err := algorithmOf(digits); err == nil {
				return digits, nil
			}
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("no line has a checksum for %q", name)
}

// namesFile tells whether a line of a checksum file is about the file called name.
func namesFile(line, name string) bool {
	if strings.Contains(line, " ("+name+") ") {
		return true
	}
	rest, ok := strings.CutSuffix(line, name)
	rest = strings.TrimSuffix(rest, "*")
	return ok && rest != strings.TrimRight(rest, " \t")
}
