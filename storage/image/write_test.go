package image

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/piped"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

const mib = 1 << 20

func rawSource(data []byte, servers ...string) Source {
	return Source{URLs: urls(servers...), Format: "raw", Checksum: sha256Of(data)}
}

func TestWriteRaw(t *testing.T) {
	for name, size := range map[string]int{
		"one byte": 1, "less than the head": 5000, "the head": device.HeadSize, "head and a byte": device.HeadSize + 1,
		"odd": 9*mib + 12345, "many chunks": 22*mib + 512, "whole disk": 24 * mib,
	} {
		t.Run(name, func(t *testing.T) {
			data := imagetest.RandomBytes(1, size)
			disk := imagetest.UsedDisk(t, 24*mib)
			server := imagetest.Serve(t, imagetest.Content(data))
			var progress Progress
			report, err := Write(t.Context(), disk, rawSource(data, server.URL+"/image.raw"),
				Options{Progress: &progress})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(imagetest.ReadAt(t, disk, 0, size), data) {
				t.Error("the disk does not hold the image")
			}
			if report.Bytes != int64(size) || report.Size != int64(size) || report.Written != int64(size) ||
				report.Format != "raw" {
				t.Errorf("got report %+v, want %d bytes of raw", report, size)
			}
			s := progress.Snapshot()
			if s.Phase != PhaseDone || s.Read != int64(size) || s.Written != int64(size) || s.Total != int64(size) {
				t.Errorf("got progress %+v, want %d bytes done", s, size)
			}
			if size+device.EndSize < 24*mib && !isZero(imagetest.ReadAt(t, disk, 23*mib, mib)) {
				t.Error("the place of the backup GPT was not zeroed")
			}
		})
	}
}

func TestWriteRawLoopDevices(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		data := imagetest.RandomBytes(2, 21*mib+sector*3+1)
		disk := testenv.Loop(t, testenv.SparseFile(t, 32*mib), sector)
		server := imagetest.Serve(t, imagetest.Content(data))
		if _, err := Write(t.Context(), disk, rawSource(data, server.URL), Options{}); err != nil {
			t.Fatalf("sectors of %d bytes: %v", sector, err)
		}
		if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
			t.Errorf("sectors of %d bytes: the disk does not hold the image", sector)
		}
	}
}

// A raw image is never interpreted, whatever it begins with.
func TestRawIsNeverInterpreted(t *testing.T) {
	data := append([]byte("QFI\xfb\x00\x00\x00\x03\xff\xff\xff\xff"), imagetest.RandomBytes(3, 3*mib)...)
	disk := imagetest.UsedDisk(t, 8*mib)
	server := imagetest.Serve(t, imagetest.Content(data))
	if _, err := Write(t.Context(), disk, rawSource(data, server.URL), Options{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
		t.Error("the disk does not hold the image byte for byte")
	}
}

// faults are servers that do not deliver the image, and the error of each.
var faults = []struct {
	name     string
	steps    func(data []byte) []http.HandlerFunc
	source   func(s *Source)
	diskSize int
	is       func(err error) bool
	text     string
	requests int64
	lasts    time.Duration // until time limits end the download, which runs in a bubble
}{
	{
		name:  "wrong checksum, the same twice",
		steps: func(data []byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Content(data[1:])} },
		is:    imagetest.IsA[*checksum.MismatchError], text: "wrong checksum", requests: 2,
	},
	{
		name:  "truncated every time",
		steps: func(data []byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Truncated(data, 3*mib)} },
		is:    imagetest.IsA[*fetch.DownloadError], text: "before the whole file had arrived", requests: 3,
	},
	{
		name:  "endless",
		steps: func(data []byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Endless(data)} },
		is:    imagetest.IsA[*device.TooSmallError], text: "too small", requests: 1,
	},
	{
		name:  "404 is fatal at once",
		steps: func([]byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Status(404)} },
		is: func(err error) bool {
			e := new(fetch.DownloadError)
			return errors.As(err, &e) && e.Fatal && e.Status == 404
		},
		text: "got HTTP status 404, want 200", requests: 1,
	},
	{
		name:  "206 is not 200",
		steps: func([]byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Status(206)} },
		is:    imagetest.IsA[*fetch.DownloadError], text: "206", requests: 1,
	},
	{
		name:  "503 to the end",
		steps: func([]byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Status(503)} },
		is: func(err error) bool {
			e := new(fetch.DownloadError)
			return errors.As(err, &e) && !e.Fatal && e.Status == 503
		},
		text: "503", requests: 3,
	},
	{
		name:     "disk too small",
		steps:    func(data []byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Content(data)} },
		diskSize: 4 * mib,
		is: func(err error) bool {
			e := new(device.TooSmallError)
			return errors.As(err, &e) && e.Size == 4*mib && e.Need == 10*mib+77
		},
		text: "too small", requests: 1,
	},
	{
		name:   "stall",
		steps:  func(data []byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Stalled(data, 5*mib)} },
		source: func(s *Source) { s.Fetch.ConnectTimeout, s.Fetch.Retries = 40*time.Second, 1 },
		is:     imagetest.IsA[*fetch.DownloadError], text: "no data arrived in time",
		requests: 2, lasts: 80 * time.Second,
	},
	{
		name: "no answer",
		steps: func([]byte) []http.HandlerFunc {
			return []http.HandlerFunc{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}
		},
		source: func(s *Source) { s.Fetch.ConnectTimeout = 40 * time.Second },
		is:     imagetest.IsA[*fetch.DownloadError], text: "no data arrived in time",
		requests: 3, lasts: 2 * time.Minute,
	},
	{
		name:   "maximum duration",
		steps:  func(data []byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Stalled(data, 5*mib)} },
		source: func(s *Source) { s.Fetch.MaxDuration = 8 * time.Second },
		is:     imagetest.IsA[*fetch.TimeoutError], text: "longer than the maximum of 8s",
		requests: 1, lasts: 8 * time.Second,
	},
	{
		name:   "maximum duration over all attempts",
		steps:  func([]byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Status(500)} },
		source: func(s *Source) { s.Fetch.MaxDuration, s.Fetch.RetryInterval = time.Minute, time.Hour },
		is:     imagetest.IsA[*fetch.TimeoutError], text: "longer than the maximum",
		requests: 1, lasts: time.Minute,
	},
	{
		name: "redirect to another scheme",
		steps: func([]byte) []http.HandlerFunc {
			return []http.HandlerFunc{http.RedirectHandler("file:///etc/shadow", http.StatusFound).ServeHTTP}
		},
		is: imagetest.IsA[*fetch.DownloadError], text: "the target is not a URL of http or https", requests: 1,
	},
	{
		name:   "empty image",
		steps:  func([]byte) []http.HandlerFunc { return []http.HandlerFunc{imagetest.Content(nil)} },
		source: func(s *Source) { s.Checksum = sha256Of(nil) },
		is:     imagetest.IsA[*FormatError], text: "empty", requests: 1,
	},
}

func TestFaults(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			data := imagetest.RandomBytes(4, 10*mib+77)
			server := imagetest.Serve(t, fault.steps(data)...)
			src := rawSource(data, strings.Replace(server.URL, "://", "://user:secret@", 1)+"/image?signature=secret")
			src.Fetch.Retries = 2
			if fault.source != nil {
				fault.source(&src)
			}
			size := 16 * mib
			if fault.diskSize != 0 {
				size = fault.diskSize
			}
			disk := imagetest.UsedDisk(t, size)
			var err error
			if fault.lasts > 0 {
				synctest.Test(t, func(t *testing.T) {
					client, stop := piped.Serve(server.Config.Handler)
					defer stop()
					src.Fetch.Client = client
					started := time.Now()
					_, err = Write(t.Context(), disk, src, Options{Log: imagetest.Log(t)})
					if took := time.Since(started); took != fault.lasts {
						t.Errorf("got the error after %v, want %v", took, fault.lasts)
					}
				})
			} else {
				_, err = Write(t.Context(), disk, src, Options{Log: imagetest.Log(t)})
			}
			if !fault.is(err) || !strings.Contains(err.Error(), fault.text) {
				t.Errorf("got error %v (%T), want one with %q", err, err, fault.text)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a secret: %v", err)
			}
			if n := server.Requests.Load(); fault.requests != 0 && n != fault.requests {
				t.Errorf("got %d requests, want %d", n, fault.requests)
			}
			imagetest.MustNotBoot(t, disk)
		})
	}
}

func TestRecovery(t *testing.T) {
	data := imagetest.RandomBytes(5, 6*mib+3)
	bad := bytes.Clone(data)
	bad[5*mib] ^= 1
	for name, steps := range map[string][]http.HandlerFunc{
		"503 twice, then 200":    {imagetest.Status(503), imagetest.Status(503), imagetest.Content(data)},
		"flipped bit, then good": {imagetest.Content(bad), imagetest.Content(data)},
		"truncated, then good":   {imagetest.Truncated(data, 2*mib), imagetest.Content(data)},
		"truncated in the head":  {imagetest.Truncated(data, 100), imagetest.Content(data)},
	} {
		t.Run(name, func(t *testing.T) {
			server := imagetest.Serve(t, steps...)
			src := rawSource(data, server.URL)
			src.Fetch.Retries = 2
			disk := imagetest.UsedDisk(t, 16*mib)
			if _, err := Write(t.Context(), disk, src, Options{Log: imagetest.Log(t)}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
				t.Error("the disk does not hold the image")
			}
			if n := int(server.Requests.Load()); n != len(steps) {
				t.Errorf("got %d requests, want %d", n, len(steps))
			}
		})
	}
}

func TestSecondURL(t *testing.T) {
	data := imagetest.RandomBytes(6, 3*mib)
	good := imagetest.Serve(t, imagetest.Content(data))
	closed := imagetest.Serve(t, imagetest.Status(500))
	closed.Close()
	for name, first := range map[string]string{
		"connection refused": closed.URL,
		"500":                imagetest.Serve(t, imagetest.Status(500)).URL,
		"wrong bytes":        imagetest.Serve(t, imagetest.Content(data[:mib])).URL,
		"truncated":          imagetest.Serve(t, imagetest.Truncated(data, 2*mib)).URL,
	} {
		t.Run(name, func(t *testing.T) {
			disk := imagetest.UsedDisk(t, 8*mib)
			src := rawSource(data, first, good.URL+"/second")
			src.Fetch.Retries = 1
			report, err := Write(t.Context(), disk, src, Options{Log: imagetest.Log(t)})
			if err != nil {
				t.Fatal(err)
			}
			if report.URL != good.URL+"/second" {
				t.Errorf("got the image from %s, want it from the second URL", report.URL)
			}
			if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
				t.Error("the disk does not hold the image")
			}
		})
	}
	t.Run("404 ends the list", func(t *testing.T) {
		missing := imagetest.Serve(t, imagetest.Status(404))
		before := good.Requests.Load()
		_, err := Write(t.Context(), imagetest.UsedDisk(t, 8*mib), rawSource(data, missing.URL, good.URL), Options{})
		if !imagetest.IsA[*fetch.DownloadError](err) || good.Requests.Load() != before {
			t.Errorf("got error %v and %d requests to the second server, want a fatal error and none",
				err, good.Requests.Load()-before)
		}
	})
}

// Nothing of a wrong image remains at the end of the disk, the place of the backup GPT.
func TestRecoveryWipesWhatWasWrong(t *testing.T) {
	data, wrong := imagetest.RandomBytes(5, 6*mib+3), imagetest.RandomBytes(6, 16*mib)
	server := imagetest.Serve(t, imagetest.WithoutRanges(wrong), imagetest.WithoutRanges(data))
	src := rawSource(data, server.URL)
	src.Fetch.Retries = 1
	disk := imagetest.UsedDisk(t, 16*mib)
	if _, err := Write(t.Context(), disk, src, Options{Log: imagetest.Log(t)}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
		t.Error("the disk does not hold the image")
	}
	if !isZero(imagetest.ReadAt(t, disk, 16*mib-device.EndSize, device.EndSize)) {
		t.Error("the end of the disk still holds what the first transfer brought")
	}
}

func TestCancel(t *testing.T) {
	data := imagetest.RandomBytes(7, 10*mib)
	ctx, cancel := context.WithCancel(t.Context())
	server := imagetest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(data[:6*mib]) //nolint:errcheck // the client may disconnect
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
	})
	disk := imagetest.UsedDisk(t, 16*mib)
	src := rawSource(data, server.URL)
	src.Fetch.Retries, src.Fetch.RetryInterval = 5, time.Hour
	if _, err := Write(ctx, disk, src, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	imagetest.MustNotBoot(t, disk)
}

// The old system is wiped before the first byte of the image arrives, and the first MiB of the image is written last.
func TestFirstMiBLast(t *testing.T) {
	data := imagetest.RandomBytes(8, 12*mib)
	disk := imagetest.UsedDisk(t, 16*mib)
	server := imagetest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		imagetest.MustNotBoot(t, disk)
		w.Write(data[:11*mib]) //nolint:errcheck // the client may disconnect
		w.(http.Flusher).Flush()
		if !isZero(imagetest.ReadAt(t, disk, 0, device.HeadSize)) {
			t.Error("the first MiB was written before the image had arrived")
		}
		w.Write(data[11*mib:]) //nolint:errcheck // the client may disconnect
	})
	if _, err := Write(t.Context(), disk, rawSource(data, server.URL), Options{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
		t.Error("the disk does not hold the image")
	}
}

// TestFirstMiBLastAfterProbe checks that the disk is unchanged until the beginning of an image for a whole disk was
// checked, and that the first MiB is written last.
func TestFirstMiBLastAfterProbe(t *testing.T) {
	data := imagetest.RandomBytes(9, 56*mib)
	copy(data[510:], "\x55\xaa")
	disk := imagetest.UsedDisk(t, 64*mib)
	server := imagetest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		imagetest.MustBeUntouched(t, disk)
		for at := 0; at < len(data); at += 8 * mib {
			if at >= 40*mib { // more than sockets buffer: the node has read beyond the beginning that it checks
				imagetest.MustNotBoot(t, disk)
			}
			w.Write(data[at : at+8*mib]) //nolint:errcheck // the client may disconnect
		}
	})
	_, err := Write(t.Context(), disk, rawSource(data, server.URL), Options{DiskSectorSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
		t.Error("the disk does not hold the image")
	}
}
