package image

import (
	"context"
	"io"
)

// Open fetches one URL and returns its content, which the caller must close. f limits the request, each read and the
// rate of all reads; MaxDuration is not used. A connection that ends before the content is complete is an error.
// Errors are *DownloadError and *SlowError; they do not quote what the server sent.
func Open(ctx context.Context, f Fetch, rawURL string) (io.ReadCloser, error) {
	b, err := newFetcher(f, nil, nil).open(ctx, rawURL, nil)
	if err != nil {
		return nil, err
	}
	return b, nil
}
