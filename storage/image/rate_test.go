package image

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/piped"
	"ironroot/storage/image/fetch"
)

// Every kind of download ends within minutes if a server sends single bytes just often enough not to stall.
func TestSlowServer(t *testing.T) {
	const address = "http://server/file?token=secret"
	data := imagetest.RandomBytes(7, 8*mib)
	disk := imagetest.UsedDisk(t, 16*mib)
	for _, tt := range []struct {
		name  string
		limit time.Duration // of the download
		is    func(error) bool
		want  []string
		run   func(ctx context.Context, f fetch.Options) error
	}{
		{
			name: "raw image", limit: 5 * time.Minute, is: imagetest.IsA[*fetch.SlowError],
			want: []string{"http://server/file?...", "0.0", "bytes per second", "at least 1024"},
			run: func(ctx context.Context, f fetch.Options) error {
				_, err := Write(ctx, disk,
					Source{URLs: urls(address), Format: "raw", Checksum: sha256Of(data), Fetch: f}, Options{})
				return err
			},
		},
		{
			name: "image that is inspected first", limit: 10 * time.Minute, is: imagetest.IsA[*fetch.SlowError],
			want: []string{"http://server/file?...", "at least 1024"},
			run: func(ctx context.Context, f fetch.Options) error {
				_, err := Write(ctx, disk,
					Source{URLs: urls(address), Format: "qcow2", Checksum: sha256Of(data), Fetch: f}, Options{})
				return err
			},
		},
		{
			name: "two servers", limit: 30 * time.Minute, is: imagetest.IsA[*fetch.SlowError],
			want: []string{"http://server/file?...", "at least 1024"},
			run: func(ctx context.Context, f fetch.Options) error {
				_, err := Write(ctx, disk,
					Source{URLs: urls(address, address), Format: "raw", Checksum: sha256Of(data), Fetch: f},
					Options{})
				return err
			},
		},
		{
			name: "checksum file", limit: 5 * time.Minute, is: imagetest.IsA[*fetch.TimeoutError],
			want: []string{"http://server/file?...", "longer than the maximum of 5m0s"},
			run: func(ctx context.Context, f fetch.Options) error {
				f.MinRate = 0
				_, err := fetch.ResolveChecksum(ctx, f, address, "", urls("http://server/image")[0], false)
				return err
			},
		},
		{
			name: "config drive", limit: 5 * time.Minute, is: imagetest.IsA[*fetch.SlowError],
			want: []string{"http://server/file?...", "at least 1024"},
			run: func(ctx context.Context, f fetch.Options) error {
				drive, err := fetch.Open(ctx, f, address)
				if err != nil {
					return err
				}
				defer drive.Close() //nolint:errcheck // only read
				_, err = io.Copy(io.Discard, drive)
				return err
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, stop := piped.Serve(imagetest.Dripping(data, 55*time.Second))
				defer stop()
				begin := time.Now()
				err := tt.run(t.Context(),
					fetch.Options{Client: client, Retries: 9, RetryInterval: 10 * time.Second, MinRate: 1024})
				if took := time.Since(begin); !tt.is(err) || took > tt.limit {
					t.Errorf("got %T %v after %v, want the error of a slow server within %v", err, err, took, tt.limit)
				}
				for _, want := range append(tt.want, "download ") {
					if !strings.Contains(fmt.Sprint(err), want) {
						t.Errorf("got %v, want %q in it", err, want)
					}
				}
				if strings.Contains(fmt.Sprint(err), "secret") {
					t.Errorf("got %v, want no query in it", err)
				}
			})
		})
	}
}

// After a slow server, the next URL is tried.
func TestSlowServerThenAnother(t *testing.T) {
	data := imagetest.RandomBytes(8, 3*mib)
	disk := imagetest.UsedDisk(t, 4*mib)
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("/slow", imagetest.Dripping(data, 20*time.Second))
		mux.HandleFunc("/good", imagetest.WithoutRanges(data))
		client, stop := piped.Serve(mux)
		defer stop()
		src := Source{
			URLs: urls("http://server/slow", "http://server/good"), Format: "raw", Checksum: sha256Of(data),
		}
		src.Fetch = fetch.Options{Client: client, Retries: 1, MinRate: 1024}
		if report, err := Write(t.Context(), disk, src, Options{}); err != nil || report.URL != "http://server/good" {
			t.Errorf("got %+v and %v, want the image of the second server", report, err)
		}
	})
}
