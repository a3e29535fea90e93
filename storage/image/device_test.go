package image

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

func TestBusyDevice(t *testing.T) {
	disk := testenv.Loop(t, testenv.SparseFile(t, 8*mib), 512)
	holder, err := os.OpenFile(disk, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close() //nolint:errcheck // nothing was written
	data := imagetest.RandomBytes(1, mib)
	server := imagetest.Serve(t, imagetest.Content(data))
	_, err = Write(t.Context(), disk, rawSource(data, server.URL), Options{})
	if !imagetest.IsA[*device.WriteError](err) || !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), disk+": the device is in use") {
		t.Errorf("got error %v, want one that says that %s is in use", err, disk)
	}
	if n := server.Requests.Load(); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

func TestNoDevice(t *testing.T) {
	data := imagetest.RandomBytes(1, mib)
	server := imagetest.Serve(t, imagetest.Content(data))
	for _, name := range []string{filepath.Join(t.TempDir(), "nothing"), t.TempDir(), "/dev/full", "/dev/null"} {
		_, err := Write(t.Context(), name, rawSource(data, server.URL), Options{})
		if !imagetest.IsA[*device.WriteError](err) || !strings.Contains(err.Error(), "open "+name) {
			t.Errorf("got error %v, want one of opening %s", err, name)
		}
	}
}

// The device fails after 12 MiB: it is a loop device in a tmpfs of that size.
func TestFailingDevice(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	testenv.Mount(t, "tmpfs", dir, "tmpfs", "size=12m")
	t.Cleanup(func() { testenv.Detach(t, dir) })
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 64*mib); err != nil {
		t.Fatal(err)
	}
	disk := testenv.Loop(t, file, 512)
	data := imagetest.RandomBytes(1, 30*mib)
	src := rawSource(data, imagetest.Serve(t, imagetest.Content(data)).URL)
	src.Fetch.Retries = 3
	_, err := Write(t.Context(), disk, src, Options{Log: imagetest.Log(t)})
	var failed *device.WriteError
	if !errors.As(err, &failed) || failed.Device != disk || failed.Op != "write" || failed.Offset < mib {
		t.Errorf("got error %v, want a WriteError of %s with its offset", err, disk)
	}
	imagetest.MustNotBoot(t, disk)
}

func TestAuthorization(t *testing.T) {
	data := imagetest.RandomBytes(1, 2*mib)
	const secret = "Basic c2VjcmV0"
	demanding := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != secret || r.URL.RawQuery != "temp_url_sig=abc&temp_url_expires=1" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		imagetest.Content(data)(w, r)
	}
	const query = "/v1/container/image.raw?temp_url_sig=abc&temp_url_expires=1"
	stranger := imagetest.Serve(t, imagetest.Content(data))
	// localhost and 127.0.0.1 are two hosts to a client.
	elsewhere := strings.Replace(stranger.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		fails   string
	}{
		{name: "accepted", handler: demanding},
		{name: "redirect to another host", handler: http.RedirectHandler(elsewhere, http.StatusFound).ServeHTTP},
		{
			name:    "redirect to another port",
			handler: http.RedirectHandler(stranger.URL, http.StatusTemporaryRedirect).ServeHTTP,
		},
		{name: "redirect to itself", handler: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/moved" {
				http.Redirect(w, r, "/moved?"+r.URL.RawQuery, http.StatusMovedPermanently)
				return
			}
			demanding(w, r)
		}},
		{
			name: "redirect to a file", handler: http.RedirectHandler("file:///etc/shadow", http.StatusFound).ServeHTTP,
			fails: "the target is not a URL of http or https",
		},
		{name: "endless redirects", handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, fails: "more than 10 redirects"},
		{name: "refused", handler: imagetest.Status(http.StatusForbidden), fails: "got HTTP status 403"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := rawSource(data, imagetest.Serve(t, c.handler).URL+query)
			src.Fetch.Header = http.Header{"authorization": {secret}, "X-Auth-Token": {"secret"}}
			_, err := Write(t.Context(), imagetest.UsedDisk(t, 4*mib), src, Options{})
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("got error %v, want %q", err, c.fails)
			}
			if err != nil && (strings.Contains(err.Error(), "sig=abc") || strings.Contains(err.Error(), secret)) {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	for _, header := range stranger.Headers {
		if header.Get("Authorization") != "" || header.Get("X-Auth-Token") != "" {
			t.Errorf("another host was sent %v", header)
		}
	}
	for _, header := range stranger.Headers {
		if referer := header.Get("Referer"); referer != "" {
			t.Errorf("another host was sent the Referer %q, which holds a signature", referer)
		}
	}
	if len(stranger.Headers) != 2 {
		t.Errorf("the other host got %d requests, want 2", len(stranger.Headers))
	}
}

func TestSchemes(t *testing.T) {
	for _, u := range []string{
		"file:///etc/shadow", "ftp://host/image", "/etc/shadow", "", "http:///image", "data:,x", "HTTP//x",
		"http://user:secret@[::1/x",
	} {
		_, err := fetch.ParseURL(u)
		var down *fetch.DownloadError
		if !errors.As(err, &down) || !down.Fatal || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got error %v, want a fatal DownloadError", u, err)
		}
	}
	src := rawSource([]byte("x"))
	src.URLs = make([]fetch.URL, 1)
	var down *fetch.DownloadError
	if _, err := Write(t.Context(), imagetest.UsedDisk(t, mib), src, Options{}); !errors.As(err, &down) || !down.Fatal {
		t.Errorf("without a URL: got error %v, want a fatal DownloadError", err)
	}
}

// Images can be larger than the buffers. The memory for a qcow2 image does not grow with its content.
func TestMemoryIsBounded(t *testing.T) {
	const size, rawLimit, limit = 256 * mib, 40 * mib, 64 * mib
	t.Run("raw", func(t *testing.T) {
		block := imagetest.RandomBytes(1, mib)
		sum := sha256Of(bytes.Repeat(block, size/mib))
		server := imagetest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for range size / mib {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		})
		src := Source{URLs: urls(server.URL), Format: "raw", Checksum: sum}
		if grown := heapOfWrite(t, size, src); grown > rawLimit {
			t.Errorf("the heap grew by %d bytes while %d bytes were written, want at most %d",
				grown, int64(size), int64(rawLimit))
		}
	})
	for _, c := range []struct {
		command string
		data    []byte
	}{
		// A large window finds long repetitions.
		{"zstd -q -1 --long=24 -c", bytes.Repeat(imagetest.RandomBytes(46, 3*mib), size/(3*mib))},
		{
			"xz -0 --lzma2=dict=32MiB,mode=fast,mf=hc3 --block-size=34MiB -c",
			bytes.Repeat(imagetest.RandomBytes(46, 3*mib), 60/3),
		},
		{"gzip -1 -c", imagetest.RandomBytes(47, 64*mib)},
		{"bzip2 -9 -c", imagetest.RandomBytes(47, 12*mib)},
		{"lz4 -q -B7 -c", imagetest.RandomBytes(47, 64*mib)},
	} {
		if testing.Short() && !strings.HasPrefix(c.command, "zstd") {
			continue
		}
		t.Run(c.command, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "image")
			packed := imagetest.Pack(t, c.data, c.command)
			if err := os.WriteFile(file, packed, 0o600); err != nil {
				t.Fatal(err)
			}
			src := packedSource(packed, "http://host/")
			// Not from this heap.
			server := imagetest.Serve(t, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
			src.URLs = urls(server.URL + "/image")
			if grown := heapOfWrite(t, size, src); grown > limit {
				t.Errorf("the heap grew by %d bytes, want at most %d", grown, int64(limit))
			}
		})
	}
	for _, c := range []struct {
		name    string
		options string
		ranges  bool
		change  func(image []byte) []byte
	}{
		{"qcow2, zstd with the largest clusters", "-c -o compression_type=zstd,cluster_size=2M", true, bytes.Clone},
		{"qcow2, zlib with small clusters", "-c -o cluster_size=4k", true, bytes.Clone},
		{"qcow2, zlib with small clusters, no ranges", "-c -o cluster_size=4k", false, bytes.Clone},
		{
			"qcow2, no ranges, tables last", "-o cluster_size=4k", false,
			func(b []byte) []byte { return tablesMoved(b, true, true, true) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "image.qcow2")
			args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, strings.Fields(c.options)...)
			testenv.Run(t, "qemu-img", append(args, guestDisk(t, 1, size/2), file)...)
			if err := os.WriteFile(file, c.change(testenv.Content(t, file)), 0o600); err != nil {
				t.Fatal(err)
			}
			sum := sha256Of(testenv.Content(t, file))
			server := imagetest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				if !c.ranges {
					r.Header.Del("Range")
				}
				http.ServeFile(w, r, file) // not from this heap
			})
			src := Source{URLs: urls(server.URL + "/image"), Format: "qcow2", Checksum: sum}
			if grown := heapOfWrite(t, size, src); grown > limit {
				t.Errorf("the heap grew by %d bytes, want at most %d", grown, int64(limit))
			}
		})
	}
}

// heapOfWrite writes an image to a disk of size bytes and returns by how many bytes the heap grew meanwhile at most.
func heapOfWrite(t *testing.T, size int64, src Source) int64 {
	t.Helper()
	disk := testenv.SparseFile(t, size)
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // the default, as in the agent
	runtime.GC()
	debug.FreeOSMemory()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak uint64
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapInuse)
			case <-done:
				return
			}
		}
	}()
	_, err := Write(t.Context(), disk, src, Options{})
	close(done)
	<-watched
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the heap grew by %d KiB", (int64(peak)-int64(before.HeapInuse))>>10)
	return int64(peak) - int64(before.HeapInuse)
}
