package image

import (
	"context"
	"io"
)

// Open fetches one URL and returns its content, which the caller must close. The request, each read and the rate of all
// reads are limited as f says; MaxDuration is not used. Reading fails where the connection ends before the content does.
// Errors are *DownloadError and *SlowError; they do not repeat what the server sent.
func Open(ctx context.Context, f Fetch, rawURL string) (io.ReadCloser, error) {
	b, err := newFetcher(f, nil, nil).open(ctx, rawURL, nil)
	if err != nil {
		return nil, err
	}
	return b, nil
}
