package image

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"
	"time"
)

// maxChecksumFile limits what is read of a checksum file: those of whole distributions have a few thousand lines.
const maxChecksumFile = 1 << 20

// ResolveChecksum finds the checksum of an image. value is the digest in hexadecimal digits, or the URL of a checksum
// file. Of a checksum file, it uses the lines that name the last path element of imageURL, and of several digests that
// of the strongest algorithm. If algorithmName is empty or unknown, the number of digits selects the algorithm. md5 is
// rejected unless md5Allowed.
//
// The errors of fetching a checksum file are *DownloadError, *SlowError and *TimeoutError; all others mean a bad
// request.
func ResolveChecksum(ctx context.Context, f Fetch, value, algorithmName, imageURL string, md5Allowed bool) (Checksum, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return Checksum{}, errors.New("the image has no checksum")
	}
	named := findAlgorithm(algorithmName)
	sum := Checksum{Value: value}
	if isURL(value) {
		var err error
		if sum, err = fetchChecksum(ctx, f, value, named, imageURL); err != nil {
			return Checksum{}, err
		}
	} else if named != nil {
		sum.Algorithm = named.name
	} else if a := detectAlgorithm(value, nil, isBare); a != nil {
		sum.Algorithm = a.name
	} else {
		return Checksum{}, fmt.Errorf("the algorithm of the checksum could not be identified: got %d characters, "+
			"want 32, 64 or 128 hexadecimal digits", len(value))
	}
	if sum.Algorithm == "md5" && !md5Allowed {
		return Checksum{}, errors.New("the checksum is an md5 sum, and md5 is not enabled")
	}
	_, err := sum.hash()
	return sum, err
}

func isURL(value string) bool { return strings.Contains(value, "://") }

// fetchChecksum fetches a checksum file, which is as likely to fail for a while as the image itself.
func fetchChecksum(ctx context.Context, f Fetch, fileURL string, named *algorithm, imageURL string) (Checksum, error) {
	name, err := fileName(imageURL)
	if err != nil {
		return Checksum{}, err
	}
	var text []byte
	err = f.within(ctx, fileURL, f.smallFileLimit(), func(ctx context.Context) (err error) {
		text, err = newFetcher(f, nil, nil).readAll(ctx, fileURL, maxChecksumFile)
		return err
	})
	if err != nil {
		return Checksum{}, fmt.Errorf("checksum of image %s: %w", name, err)
	}
	sum, err := findChecksum(text, name, named)
	if err != nil {
		return Checksum{}, fmt.Errorf("checksum file %s of %d bytes: %w", redactURL(fileURL), len(text), err)
	}
	sum.File = redactURL(fileURL)
	return sum, nil
}

// smallFileTimeout limits all attempts to fetch a checksum file, and to find an image in a registry, together.
// tokenTimeout limits one request for a token.
const (
	smallFileTimeout = 5 * time.Minute
	tokenTimeout     = time.Minute
)

// smallFileLimit returns how long all attempts to fetch a small file may take together.
func (f Fetch) smallFileLimit() time.Duration {
	limit := cmp.Or(f.smallFile, smallFileTimeout)
	if f.MaxDuration > 0 {
		limit = min(limit, f.MaxDuration)
	}
	return limit
}

// within calls do with a context that ends after limit. It returns a TimeoutError that names rawURL if the limit was
// reached.
func (f Fetch) within(ctx context.Context, rawURL string, limit time.Duration, do func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errMaxDuration)
	defer cancel()
	err := do(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errMaxDuration) {
		return &TimeoutError{URL: redactURL(rawURL), Max: limit}
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

// findChecksum finds the strongest digest of a file in a checksum file. Of digests of equal length it prefers that of
// the algorithm that the caller named, which may be nil. It reads these forms:
//
//	DIGITS                         alone in the file
//	DIGITS  name   DIGITS *name    as md5sum and similar tools write them, in text and in binary mode
//	SHA256 (name) = DIGITS         as BSD's tools and "cksum --tag" write them, and OpenSSL's without the spaces
//
// Errors do not repeat the file's content.
func findChecksum(text []byte, name string, named *algorithm) (Checksum, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return Checksum{}, errors.New("the file is empty")
	}
	if !bytes.ContainsAny(text, " \t\r\n") {
		a := detectAlgorithm(string(text), named, isBare)
		if a == nil {
			return Checksum{}, fmt.Errorf("the algorithm could not be identified: got %d characters, "+
				"want 32, 64 or 128 hexadecimal digits", len(text))
		}
		return Checksum{Algorithm: a.name, Value: string(text)}, nil
	}
	var best Checksum
	var found *algorithm
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxChecksumFile+1)
	for lines.Scan() {
		a, digits := parseChecksumLine(strings.TrimSpace(lines.Text()), name, named)
		if a == nil || found != nil && !stronger(a, found, named) {
			continue
		}
		best, found = Checksum{Algorithm: a.name, Value: digits}, a
	}
	if err := lines.Err(); err != nil {
		return Checksum{}, err
	}
	if found == nil {
		return Checksum{}, fmt.Errorf("no line has a checksum for %q", name)
	}
	return best, nil
}

// stronger reports whether a digest of algorithm a is preferred to one of b.
func stronger(a, b, named *algorithm) bool {
	if a.digits != b.digits {
		return a.digits > b.digits
	}
	return a == named && b != named
}

// parseChecksumLine returns the digest that a line has for the file called name, and its algorithm. The algorithm is
// nil if the line has none.
func parseChecksumLine(line, name string, named *algorithm) (*algorithm, string) {
	if strings.HasPrefix(line, "#") {
		return nil, ""
	}
	if tag, digits, ok := parseTagged(line, name); ok {
		a := findAlgorithm(tag)
		if a == nil || !isHex(digits, a.digits) || a.named && a != named {
			return nil, ""
		}
		return a, digits
	}
	if !namesFile(line, name) {
		return nil, ""
	}
	fields := strings.Fields(line)
	for _, digits := range []string{fields[0], fields[len(fields)-1]} {
		if a := detectAlgorithm(digits, named, isListed); a != nil {
			return a, digits
		}
	}
	return nil, ""
}

// parseTagged reads "TAG (name) = DIGITS" and "TAG(name)= DIGITS".
func parseTagged(line, name string) (tag, digits string, ok bool) {
	tag, rest, ok := strings.Cut(line, "("+name+")")
	if !ok {
		return "", "", false
	}
	tag = strings.TrimSpace(tag)
	digits, ok = strings.CutPrefix(strings.TrimSpace(rest), "=")
	if !ok || tag == "" || strings.ContainsAny(tag, " \t") {
		return "", "", false
	}
	tag = strings.TrimPrefix(canonicalName(tag), "sha2_") // OpenSSL 3 writes SHA2-256
	if strings.Trim(tag, "0123456789") == "" {
		tag = "sha" + tag
	}
	return tag, strings.TrimSpace(digits), true
}

// namesFile reports whether a line of a checksum file names the file called name.
func namesFile(line, name string) bool {
	if strings.Contains(line, " ("+name+") ") {
		return true
	}
	rest, ok := strings.CutSuffix(line, name)
	rest = strings.TrimSuffix(rest, "*")
	return ok && rest != strings.TrimRight(rest, " \t")
}
