package fetch

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/imagetest"
)

// No error quotes what a server sent, for any kind of URL.
func TestErrorsDoNotRepeatResponses(t *testing.T) {
	for name, answer := range imagetest.PlantedResponses {
		server := imagetest.Serve(t, imagetest.Respond(answer))
		secure := httptest.NewTLSServer(imagetest.Respond(answer))
		t.Cleanup(secure.Close)
		for kind, run := range map[string]func(context.Context, Options) error{
			"checksum file": func(ctx context.Context, f Options) error {
				_, err := ResolveChecksum(ctx, f, server.URL+"/SUMS", "", mustParse("http://host/image"), false)
				return err
			},
			"manifest": func(ctx context.Context, f Options) error {
				f.Client = secure.Client()
				_, err := ResolveOCI(ctx, f, "oci"+strings.TrimPrefix(secure.URL, "https")+"/os/image", "amd64")
				return err
			},
			"token": func(ctx context.Context, f Options) error {
				own, reference := tokenRegistry(t, bearerOf, imagetest.Respond(answer))
				own.Retries, own.ConnectTimeout = f.Retries, f.ConnectTimeout
				_, err := ResolveOCI(ctx, own, reference, "amd64")
				return err
			},
			"config drive": func(ctx context.Context, f Options) error {
				drive, err := Open(ctx, f, server.URL)
				if err == nil {
					_, err = io.Copy(io.Discard, drive)
					drive.Close() //nolint:errcheck // only read
				}
				return err
			},
		} {
			err := run(t.Context(), Options{ConnectTimeout: time.Minute})
			if text := fmt.Sprint(err); strings.Contains(strings.ToLower(text), "s3cret") {
				t.Errorf("%s in %s: got error %v, which quotes the response", name, kind, err)
			}
		}
	}
}
