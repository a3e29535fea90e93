package image

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// sample is an image and the disk that it describes.
type sample struct {
	name       string
	file, disk []byte
	source     func(url string) Source
	noRanges   bool // its server ignores ranges
	options    Options
}

// samples returns a small disk as one image for every way through the writer.
func samples(t *testing.T, disk []byte) []sample {
	t.Helper()
	dir := imagetest.MemoryDir(t)
	raw, qcow := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Programs(t, "qemu-img")
	testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow)
	image, gz := testenv.Content(t, qcow), imagetest.Pack(t, disk, "gzip -1 -c")
	bootable := bytes.Clone(disk)
	copy(bootable[510:], "\x55\xaa")
	return []sample{
		{name: "raw", file: disk, disk: disk, source: func(url string) Source { return rawSource(disk, url) }},
		{
			name: "raw for a disk", file: bootable, disk: bootable,
			source: func(url string) Source { return rawSource(bootable, url) }, options: Options{DiskSectorSize: 512},
		},
		{name: "qcow2", file: image, disk: disk, source: func(url string) Source { return qcowSource(image, url) }},
		{
			name: "qcow2 in one pass", file: image, disk: disk,
			source: func(url string) Source { return qcowSource(image, url) }, noRanges: true,
		},
		{name: "gzip", file: gz, disk: disk, source: func(url string) Source { return packedSource(gz, url) }},
	}
}

// trial is one fault at one tenth of one image.
type trial struct {
	t      *testing.T
	sample sample
	at     int64 // byte of the file
	disk   string
	f      *imagetest.Flaky
	// whole counts the requests for the whole file: they have the fault.
	whole int
}

// isInProbe reports whether the fault is in the part of a raw image that is checked before the disk is changed.
func (r *trial) isInProbe() bool {
	return r.sample.options.DiskSectorSize > 0 && r.at < device.HeadSize
}

func (r *trial) isWhole(q *http.Request) bool {
	return q.Header.Get("Range") == "" || r.sample.noRanges
}

// serve serves the file. Before a request for the whole file it calls misbehave with the server's Mu held: the
// request before may not have ended.
func (r *trial) serve(misbehave func(w http.ResponseWriter, first bool)) string {
	return imagetest.Serve(r.t, func(w http.ResponseWriter, q *http.Request) {
		if r.isWhole(q) {
			r.f.Mu.Lock()
			r.whole++
			r.f.Sent = 0
			misbehave(w, r.whole == 1)
			r.f.Mu.Unlock()
		}
		r.f.ServeHTTP(w, q)
	}).URL
}

// write has the image written with so many retries.
func (r *trial) write(url string, retries int) (Report, error) {
	src := r.sample.source(url)
	src.Fetch.Retries = retries
	return Write(r.t.Context(), r.disk, src, r.sample.options)
}

// wantImage fails unless the image was written and the server sent so many bytes.
func (r *trial) wantImage(err error, sent int64) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	if at, same := imagetest.Difference(imagetest.ReadAt(r.t, r.disk, 0, len(r.sample.disk)), r.sample.disk); !same {
		r.t.Errorf("the disk differs from the image at byte %d", at)
	}
	r.f.Mu.Lock()
	defer r.f.Mu.Unlock()
	if sent >= 0 && r.f.Sent != sent && !r.sample.noRanges {
		r.t.Errorf("got %d bytes served, want %d", r.f.Sent, sent)
	}
}

func (r *trial) wantFailure(err error, is func(error) bool) {
	r.t.Helper()
	if !is(err) {
		r.t.Errorf("got error %v (%T)", err, err)
	}
	if r.sample.noRanges && imagetest.IsA[*FormatError](err) && imagetest.ReadAt(r.t, r.disk, 0, 1)[0] == 0xa5 {
		imagetest.MustBeUntouched(r.t, r.disk) // the probe had the fault already
		return
	}
	imagetest.MustNotBoot(r.t, r.disk)
}

// tenthFaults are the faults that can happen at any tenth of a download.
var tenthFaults = []struct {
	name string
	try  func(r *trial)
}{
	{"the connection is lost and resumes", func(r *trial) {
		report, err := r.write(r.serve(func(_ http.ResponseWriter, first bool) {
			if first {
				r.f.Cuts = []int64{r.at}
			}
		}), 1)
		r.wantImage(err, int64(len(r.sample.file)))
		if want := map[bool]int{false: 1}[r.sample.noRanges || r.isInProbe()]; report.Resumed != want {
			r.t.Errorf("got %d resumed connections, want %d", report.Resumed, want)
		}
	}},
	{"the connection is lost, the server ignores ranges then", func(r *trial) {
		_, err := r.write(r.serve(func(_ http.ResponseWriter, first bool) {
			if r.f.Cuts = nil; first {
				r.f.Cuts = []int64{r.at}
			}
			r.f.NoRanges = first || r.sample.noRanges
		}), 1)
		r.wantImage(err, -1) // the beginning of the whole file is sent again
	}},
	{"the connection is lost every time", func(r *trial) {
		r.f.Header = nil
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) { r.f.Cuts = []int64{r.at} }), 1)
		r.wantFailure(err, imagetest.IsA[*fetch.DownloadError])
	}},
	{"the file changes from there on, and is the old one the next time", func(r *trial) {
		other := &imagetest.Flaky{
			Data: imagetest.RandomBytes(61, len(r.sample.file)), Header: http.Header{"Etag": {`"two"`}},
		}
		url := imagetest.Serve(r.t, func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("If-Range") != "" {
				other.ServeHTTP(w, q)
				return
			}
			r.f.Mu.Lock()
			if r.isWhole(q) && r.whole == 0 {
				r.whole, r.f.Cuts = 1, []int64{r.at}
			}
			r.f.Mu.Unlock()
			r.f.ServeHTTP(w, q)
		}).URL
		_, err := r.write(url, 1)
		r.wantImage(err, -1)
		if want := map[bool]int{false: 1}[r.isInProbe()]; len(other.Ranges) != want && !r.sample.noRanges {
			r.t.Errorf("got %d requests for the rest, want %d", len(other.Ranges), want)
		}
	}},
	{"the file changes permanently", func(r *trial) {
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) {
			r.f.Cuts = []int64{r.at}
			r.f.OnCut = func(f *imagetest.Flaky) {
				f.Data = append(bytes.Clone(f.Data[:r.at]), imagetest.RandomBytes(62, len(f.Data)-int(r.at))...)
				f.Header = http.Header{"Etag": {`"two"`}}
			}
		}), 1)
		r.wantFailure(err, func(err error) bool {
			return imagetest.IsA[*checksum.MismatchError](err) || imagetest.IsA[*fetch.DownloadError](err) ||
				imagetest.IsA[*FormatError](err) || r.isInProbe() && imagetest.IsA[*NoDiskError](err)
		})
	}},
	{"one bit is wrong", func(r *trial) {
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) {
			r.f.Data = bytes.Clone(r.sample.file)
			r.f.Data[r.at] ^= 0x20
		}), 1)
		r.wantFailure(err, func(err error) bool {
			return imagetest.IsA[*checksum.MismatchError](err) || imagetest.IsA[*FormatError](err)
		})
	}},
	{"the file ends", func(r *trial) {
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) { r.f.Data = r.sample.file[:r.at] }), 1)
		r.wantFailure(err, func(err error) bool {
			return imagetest.IsA[*checksum.MismatchError](err) || imagetest.IsA[*FormatError](err)
		})
	}},
	{"it never ends", func(r *trial) {
		url := imagetest.Serve(r.t, func(w http.ResponseWriter, q *http.Request) {
			if !r.isWhole(q) {
				r.f.ServeHTTP(w, q)
				return
			}
			w.Write(r.sample.file[:r.at])                 //nolint:errcheck // the client may disconnect
			imagetest.Endless(r.sample.file[r.at:])(w, q) // once more and once more
		}).URL
		_, err := r.write(url, 1)
		r.wantFailure(err, func(err error) bool {
			return imagetest.IsA[*device.TooSmallError](err) || imagetest.IsA[*FormatError](err) ||
				imagetest.IsA[*checksum.MismatchError](err)
		})
	}},
	{"the power is cut", func(r *trial) {
		// After a power cut a machine boots from what is on the disk now. The first MiB must be empty.
		held := func(*imagetest.Flaky) { imagetest.MustNotBoot(r.t, r.disk) }
		if r.sample.noRanges || r.sample.options.DiskSectorSize > 0 {
			// The server does not see the progress of the node: see TestFirstMiBLastInOnePass and
			// TestFirstMiBLastAfterProbe.
			held = nil
		}
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) { r.f.Cuts, r.f.OnCut = []int64{r.at}, held }), 1)
		if r.sample.noRanges {
			r.wantFailure(err, imagetest.IsA[*fetch.DownloadError]) // the second time as well
			return
		}
		r.wantImage(err, -1)
	}},
}

// TestFaultsAtAnyTenth tries every fault at every tenth of every kind of image: at the end the disk contains the
// image, or it does not boot.
func TestFaultsAtAnyTenth(t *testing.T) {
	for _, s := range samples(t, imagetest.DiskContent(60, 6*mib, 300<<10)) {
		for _, fault := range tenthFaults {
			for tenth := range 10 {
				t.Run(fmt.Sprintf("%s, %s, %d", s.name, fault.name, tenth), func(t *testing.T) {
					t.Parallel()
					fault.try(&trial{
						t: t, sample: s, at: int64(len(s.file)) * int64(tenth) / 10, disk: imagetest.UsedDisk(t, 8*mib),
						f: &imagetest.Flaky{Data: s.file, Header: http.Header{"Etag": {`"one"`}}, NoRanges: s.noRanges},
					})
				})
			}
		}
	}
}

// TestDiskFailsAtAnyTenth writes to a device that fails after some tenths of the image: a loop device in a file
// system that is full then.
func TestDiskFailsAtAnyTenth(t *testing.T) {
	testenv.Root(t)
	// Without zeros, which need no space.
	piece := append(imagetest.RandomBytes(63, 100<<10), bytes.Repeat([]byte("text"), 25<<8)...)
	for _, s := range samples(t, bytes.Repeat(piece, 6*mib/(125<<10))) {
		handler := imagetest.Content(s.file)
		if s.noRanges {
			handler = imagetest.WithoutRanges(s.file)
		}
		url := imagetest.Serve(t, handler).URL
		for tenth := range 10 {
			t.Run(fmt.Sprintf("%s, %d", s.name, tenth), func(t *testing.T) {
				disk := fullDisk(t, 16*mib, 2*mib+(len(s.disk)-mib)*tenth/10)
				src := s.source(url)
				src.Fetch.Retries = 3
				_, err := Write(t.Context(), disk, src, s.options)
				if !imagetest.IsA[*device.WriteError](err) {
					t.Errorf("got error %v (%T), want a WriteError", err, err)
				}
				imagetest.MustNotBoot(t, disk)
			})
		}
	}
}

// fullDisk returns a loop device of size bytes, to which only capacity bytes can be written.
func fullDisk(t *testing.T, size int64, capacity int) string {
	t.Helper()
	dir := t.TempDir()
	testenv.Mount(t, "tmpfs", dir, "tmpfs", fmt.Sprintf("size=%d", capacity))
	t.Cleanup(func() { testenv.Detach(t, dir) })
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	return testenv.Loop(t, file, 512)
}
