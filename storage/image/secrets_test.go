package image

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
)

// No error quotes what a server sent, for any kind of URL.
func TestErrorsDoNotRepeatResponses(t *testing.T) {
	image := imagetest.RandomBytes(3, mib)
	for name, answer := range imagetest.PlantedResponses {
		server := imagetest.Serve(t, imagetest.Respond(answer))
		write := func(format string) func(context.Context, fetch.Options) error {
			return func(ctx context.Context, f fetch.Options) error {
				src := Source{
					URLs: urls(server.URL + "/image"), Format: format, Checksum: sha256Of(image), Fetch: f,
				}
				_, err := Write(ctx, imagetest.UsedDisk(t, 4*mib), src, Options{})
				return err
			}
		}
		for kind, run := range map[string]func(context.Context, fetch.Options) error{
			"raw image":   write("raw"),
			"qcow2 image": write("qcow2"),
			"image":       write(""),
			"vmdk image":  write("vmdk"),
			"probed first": func(ctx context.Context, f fetch.Options) error {
				src := Source{
					URLs: urls(server.URL + "/image"), Format: "qcow2", Checksum: sha256Of(image), Fetch: f,
				}
				return Check(ctx, "disk", 4*mib, src, Options{})
			},
		} {
			err := run(t.Context(), fetch.Options{ConnectTimeout: time.Minute})
			if text := fmt.Sprint(err); strings.Contains(strings.ToLower(text), "s3cret") {
				t.Errorf("%s in %s: got error %v, which quotes the response", name, kind, err)
			}
		}
	}
}

// Errors do not quote digests of checksum files: any file with 64 digits can pass for one.
func TestDigestOfAFileIsNotRepeated(t *testing.T) {
	data := imagetest.RandomBytes(4, mib)
	secret := strings.Repeat("5ec7e7", 11)[:64]
	server := imagetest.Serve(t, imagetest.WithoutRanges([]byte(secret)))
	sum, err := fetch.ResolveChecksum(t.Context(), fetch.Options{}, server.URL+"/SUMS?x", "",
		urls("http://host/image")[0], false)
	if err != nil {
		t.Fatal(err)
	}
	src := rawSource(data, imagetest.Serve(t, imagetest.Content(data)).URL)
	src.Checksum = sum
	_, err = Write(t.Context(), imagetest.UsedDisk(t, 4*mib), src, Options{})
	if !imagetest.IsA[*checksum.MismatchError](err) || strings.Contains(err.Error(), secret) ||
		!strings.Contains(err.Error(), server.URL+"/SUMS") {
		t.Errorf("got %v, want a ChecksumError that names the file in place of its content", err)
	}
	md5 := imagetest.Serve(t, imagetest.WithoutRanges([]byte(secret[:32])))
	_, err = fetch.ResolveChecksum(t.Context(), fetch.Options{}, md5.URL, "", urls("http://host/image")[0], false)
	if err == nil || strings.Contains(err.Error(), secret[:32]) ||
		!strings.Contains(err.Error(), "md5 is not enabled") {
		t.Errorf("got %v, want a refusal of md5 that does not repeat it", err)
	}
}
