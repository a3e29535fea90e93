package image

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/fetch"
)

const dayBefore = "Fri, 20 Nov 2026 10:00:00 GMT"

// After a lost connection no byte is sent twice if the server supports ranges and sends a validator.
func TestResume(t *testing.T) {
	data := imagetest.RandomBytes(20, 21*mib+17)
	qcow := simpleImage(t, "-c")
	for name, header := range map[string]http.Header{
		"entity tag": {"Etag": {`"one"`}},
		"date":       {"Last-Modified": {dayBefore}},
		"both":       {"Etag": {`"one"`}, "Last-Modified": {dayBefore}},
	} {
		f := &imagetest.Flaky{Data: data, Header: header, Cuts: imagetest.Tenths(len(data))}
		src := rawSource(data, imagetest.Serve(t, f.ServeHTTP).URL)
		src.Fetch.Retries = 12 // a tenth is less than minProgress
		disk := imagetest.UsedDisk(t, 24*mib)
		report, err := Write(t.Context(), disk, src, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
			t.Errorf("%s: the disk does not hold the image", name)
		}
		if f.Sent != int64(len(data)) || len(f.Ranges) != 11 || report.Resumed != 10 ||
			report.Bytes != int64(len(data)) {
			t.Errorf("%s: got %d bytes served in %d responses and report %+v, want %d bytes in 11",
				name, f.Sent, len(f.Ranges), report, len(data))
		}
	}
	t.Run("qcow2", func(t *testing.T) {
		f := &imagetest.Flaky{Data: qcow, Header: http.Header{"Etag": {`"one"`}}}
		whole := false // the stream is cut, not the requests for tables
		server := imagetest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "" && !whole {
				whole, f.Cuts, f.Sent = true, imagetest.Tenths(len(qcow)), 0
			}
			f.ServeHTTP(w, r)
		})
		src := qcowSource(qcow, server.URL)
		src.Fetch.Retries = 12
		report, err := Write(t.Context(), imagetest.UsedDisk(t, 16*mib), src, Options{})
		if err != nil || f.Sent != int64(len(qcow)) || report.Resumed != 10 {
			t.Errorf("got %d bytes served, report %+v and error %v, want %d bytes", f.Sent, report, err, len(qcow))
		}
	})
	t.Run("connections that deliver much do not count as retries", func(t *testing.T) {
		f := &imagetest.Flaky{
			Data: data, Header: http.Header{"Etag": {`"one"`}}, Cuts: []int64{5 * mib, 10 * mib, 15 * mib, 20 * mib},
		}
		src := rawSource(data, imagetest.Serve(t, f.ServeHTTP).URL)
		src.Fetch.Retries = 1
		report, err := Write(t.Context(), imagetest.UsedDisk(t, 24*mib), src, Options{})
		if err != nil || report.Resumed != 4 || f.Sent != int64(len(data)) {
			t.Errorf("got %d bytes served, report %+v and error %v, want %d bytes", f.Sent, report, err, len(data))
		}
	})
	t.Run("silence", func(t *testing.T) {
		f := &imagetest.Flaky{Data: data, Header: http.Header{"Etag": {`"one"`}}, Cuts: []int64{5 * mib}, Silent: true}
		src := rawSource(data, imagetest.Serve(t, f.ServeHTTP).URL)
		src.Fetch.Retries, src.Fetch.ConnectTimeout = 1, 5*time.Second
		report, err := Write(t.Context(), imagetest.UsedDisk(t, 24*mib), src, Options{})
		if err != nil || report.Resumed != 1 || f.Sent != int64(len(data)) {
			t.Errorf("got %d bytes served, report %+v and error %v, want %d bytes", f.Sent, report, err, len(data))
		}
	})
}

// A download that cannot resume starts again, unless a retry cannot help.
func TestNoResume(t *testing.T) {
	data, other := imagetest.RandomBytes(21, 9*mib), imagetest.RandomBytes(22, 9*mib)
	tag := http.Header{"Etag": {`"one"`}}
	becomes := func(next []byte) func(*imagetest.Flaky) {
		return func(f *imagetest.Flaky) { f.Data, f.Header = next, http.Header{"Etag": {`"two"`}} }
	}
	for _, c := range []struct {
		name    string
		server  *imagetest.Flaky
		want    []byte // nil: the download fails
		text    string
		answers int
		changed bool // the change is detected before the checksum
	}{
		{name: "no validator", server: &imagetest.Flaky{}, want: data, answers: 2},
		{
			name:   "weak entity tag",
			server: &imagetest.Flaky{Header: http.Header{"Etag": {`W/"one"`}}}, want: data, answers: 2,
		},
		{
			name:   "modified in the second of the response",
			server: &imagetest.Flaky{Header: http.Header{"Last-Modified": {time.Now().UTC().Format(http.TimeFormat)}}},
			want:   data, answers: 2,
		},
		{name: "no ranges", server: &imagetest.Flaky{Header: tag, NoRanges: true}, want: data, answers: 3},
		{
			name: "another file", server: &imagetest.Flaky{Header: tag, OnCut: becomes(other)}, want: other,
			answers: 3, changed: true,
		},
		{
			name:   "another file, If-Range ignored",
			server: &imagetest.Flaky{Header: tag, IgnoreIfRange: true, OnCut: becomes(other)}, want: other,
			answers: 3, changed: true,
		},
		{
			name:   "a shorter file, If-Range ignored",
			server: &imagetest.Flaky{Header: tag, IgnoreIfRange: true, OnCut: becomes(other[:2*mib])},
			want:   other[:2*mib], answers: 3, changed: true,
		},
		{
			name: "a longer file, without a tag",
			server: &imagetest.Flaky{Header: tag, IgnoreIfRange: true, OnCut: func(f *imagetest.Flaky) {
				f.Data, f.Header = append(bytes.Clone(data), other...), nil
			}}, want: append(bytes.Clone(data), other...), answers: 3, changed: true,
		},
		{name: "the same tag, another file", server: &imagetest.Flaky{
			Header: tag, OnCut: func(f *imagetest.Flaky) { f.Data = other },
		}, want: other, answers: 3},
		{
			name:   "no progress",
			server: &imagetest.Flaky{Header: tag, OnCut: func(f *imagetest.Flaky) { f.Cuts = []int64{3 * mib} }},
			text:   "before the whole file had arrived", answers: 16,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.server
			f.Data, f.Cuts = data, []int64{3 * mib}
			src := rawSource(c.want, imagetest.Serve(t, f.ServeHTTP).URL+"/?signature=secret")
			src.Fetch.Retries = 3
			disk := imagetest.UsedDisk(t, 20*mib)
			var log bytes.Buffer
			_, err := Write(t.Context(), disk, src, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			got := strings.Contains(log.String(), "the file on the server changed while it was fetched")
			if got != c.changed || strings.Contains(log.String(), "secret") {
				t.Errorf("got a change detected: %v, want %v, and no secret, in\n%s", got, c.changed, log.String())
			}
			if len(f.Ranges) != c.answers {
				t.Errorf("got %d requests (ranges %q), want %d", len(f.Ranges), f.Ranges, c.answers)
			}
			if c.want == nil {
				if !imagetest.IsA[*fetch.DownloadError](err) || !strings.Contains(err.Error(), c.text) ||
					strings.Contains(err.Error(), "secret") {
					t.Errorf("got error %v, want one with %q", err, c.text)
				}
				imagetest.MustNotBoot(t, disk)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(c.want)), c.want) {
				t.Error("the disk does not hold the image")
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		f := &imagetest.Flaky{Data: data, Header: tag, Cuts: []int64{3 * mib}}
		server := imagetest.Serve(t, f.ServeHTTP, imagetest.Status(http.StatusForbidden))
		src := rawSource(data, server.URL)
		src.Fetch.Retries = 3
		_, err := Write(t.Context(), imagetest.UsedDisk(t, 20*mib), src, Options{})
		if !imagetest.IsA[*fetch.DownloadError](err) || !strings.Contains(err.Error(), "403") ||
			server.Requests.Load() != 2 {
			t.Errorf("got error %v after %d requests, want 403 after 2", err, server.Requests.Load())
		}
	})
}

// A server that sends another range than was requested cannot be used.
func TestWrongRange(t *testing.T) {
	image := simpleImage(t)
	server := imagetest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 4096-8191/1000000")
		w.WriteHeader(http.StatusPartialContent)
		w.Write(image[4096:8192]) //nolint:errcheck // the client may disconnect
	})
	disk := imagetest.UsedDisk(t, 16*mib)
	_, err := Write(t.Context(), disk, qcowSource(image, server.URL), Options{})
	if !imagetest.IsA[*fetch.DownloadError](err) ||
		!strings.Contains(err.Error(), "got bytes from 4096 on, want them from 0") {
		t.Errorf("got error %v, want one about the range", err)
	}
	imagetest.MustNotBoot(t, disk)
}
