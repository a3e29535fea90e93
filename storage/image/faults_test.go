package image

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
)

// sample is an image and the disk that it describes.
type sample struct {
	name       string
	file, disk []byte
	source     func(url string) Source
	noRanges   bool // its server ignores ranges
}

// samples returns a small disk as one image for every way through the writer.
func samples(t *testing.T, disk []byte) []sample {
	t.Helper()
	dir := shm(t)
	raw, qcow := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Programs(t, "qemu-img")
	testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow)
	image, gz := mustRead(t, qcow), pack(t, disk, "gzip -1 -c")
	return []sample{
		{name: "raw", file: disk, disk: disk, source: func(url string) Source { return rawSource(disk, url) }},
		{name: "qcow2", file: image, disk: disk, source: func(url string) Source { return qcowSource(image, url) }},
		{name: "qcow2 in one pass", file: image, disk: disk, source: func(url string) Source { return qcowSource(image, url) }, noRanges: true},
		{name: "gzip", file: gz, disk: disk, source: func(url string) Source { return packedSource(gz, url) }},
	}
}

// trial is one fault at one tenth of one image.
type trial struct {
	t      *testing.T
	sample sample
	at     int64 // byte of the file
	disk   string
	f      *fragile
	// whole counts the requests that are answered with all of the file: the fault is for those.
	whole int
}

func (r *trial) isWhole(q *http.Request) bool {
	return q.Header.Get("Range") == "" || r.sample.noRanges
}

// serve serves the file. Before a request for the whole file it calls misbehave with the server's Mu held: the
// request before may not have ended.
func (r *trial) serve(misbehave func(w http.ResponseWriter, first bool)) string {
	return serve(r.t, func(w http.ResponseWriter, q *http.Request) {
		if r.isWhole(q) {
			r.f.mu.Lock()
			r.whole++
			r.f.sent = 0
			misbehave(w, r.whole == 1)
			r.f.mu.Unlock()
		}
		r.f.ServeHTTP(w, q)
	}).URL
}

// write has the image written with so many retries.
func (r *trial) write(url string, retries int) (Report, error) {
	src := r.sample.source(url)
	src.Fetch.Retries = retries
	return Write(r.t.Context(), r.disk, src, Options{})
}

// wantImage fails unless the image was written and the server sent so many bytes.
func (r *trial) wantImage(err error, sent int64) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	if at, same := difference(readAt(r.t, r.disk, 0, len(r.sample.disk)), r.sample.disk); !same {
		r.t.Errorf("the disk differs from the image at byte %d", at)
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if sent >= 0 && r.f.sent != sent && !r.sample.noRanges {
		r.t.Errorf("got %d bytes served, want %d", r.f.sent, sent)
	}
}

func (r *trial) wantFailure(err error, is func(error) bool) {
	r.t.Helper()
	if !is(err) {
		r.t.Errorf("got error %v (%T)", err, err)
	}
	if r.sample.noRanges && isA[*FormatError](err) && readAt(r.t, r.disk, 0, 1)[0] == 0xa5 {
		mustBeUntouched(r.t, r.disk) // the first look had the fault already
		return
	}
	mustNotBoot(r.t, r.disk)
}

// tenthFaults are the faults that can happen at any tenth of a download.
var tenthFaults = []struct {
	name string
	try  func(r *trial)
}{
	{"the connection is lost and resumes", func(r *trial) {
		report, err := r.write(r.serve(func(_ http.ResponseWriter, first bool) {
			if first {
				r.f.cuts = []int64{r.at}
			}
		}), 1)
		r.wantImage(err, int64(len(r.sample.file)))
		if want := map[bool]int{false: 1}[r.sample.noRanges]; report.Resumed != want {
			r.t.Errorf("got %d resumed connections, want %d", report.Resumed, want)
		}
	}},
	{"the connection is lost, the server ignores ranges then", func(r *trial) {
		_, err := r.write(r.serve(func(_ http.ResponseWriter, first bool) {
			if r.f.cuts = nil; first {
				r.f.cuts = []int64{r.at}
			}
			r.f.noRanges = first || r.sample.noRanges
		}), 1)
		r.wantImage(err, -1) // the beginning of the whole file is sent again
	}},
	{"the connection breaks off every time", func(r *trial) {
		r.f.header = nil
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) { r.f.cuts = []int64{r.at} }), 1)
		r.wantFailure(err, isA[*DownloadError])
	}},
	{"the file is another one from there on, and back the next time", func(r *trial) {
		other := &fragile{data: randomBytes(61, len(r.sample.file)), header: http.Header{"Etag": {`"two"`}}}
		url := serve(r.t, func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("If-Range") != "" {
				other.ServeHTTP(w, q)
				return
			}
			r.f.mu.Lock()
			if r.isWhole(q) && r.whole == 0 {
				r.whole, r.f.cuts = 1, []int64{r.at}
			}
			r.f.mu.Unlock()
			r.f.ServeHTTP(w, q)
		}).URL
		_, err := r.write(url, 1)
		r.wantImage(err, -1)
		if len(other.asked) != 1 && !r.sample.noRanges {
			r.t.Errorf("got %d requests for the rest, want 1", len(other.asked))
		}
	}},
	{"the file changes permanently", func(r *trial) {
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) {
			r.f.cuts = []int64{r.at}
			r.f.onCut = func(f *fragile) {
				f.data = append(bytes.Clone(f.data[:r.at]), randomBytes(62, len(f.data)-int(r.at))...)
				f.header = http.Header{"Etag": {`"two"`}}
			}
		}), 1)
		r.wantFailure(err, func(err error) bool {
			return isA[*ChecksumError](err) || isA[*DownloadError](err) || isA[*FormatError](err)
		})
	}},
	{"one bit is wrong", func(r *trial) {
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) {
			r.f.data = bytes.Clone(r.sample.file)
			r.f.data[r.at] ^= 0x20
		}), 1)
		r.wantFailure(err, func(err error) bool { return isA[*ChecksumError](err) || isA[*FormatError](err) })
	}},
	{"the file ends", func(r *trial) {
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) { r.f.data = r.sample.file[:r.at] }), 1)
		r.wantFailure(err, func(err error) bool { return isA[*ChecksumError](err) || isA[*FormatError](err) })
	}},
	{"it never ends", func(r *trial) {
		url := serve(r.t, func(w http.ResponseWriter, q *http.Request) {
			if !r.isWhole(q) {
				r.f.ServeHTTP(w, q)
				return
			}
			w.Write(r.sample.file[:r.at])       //nolint:errcheck // the client may go
			endless(r.sample.file[r.at:])(w, q) // once more and once more
		}).URL
		_, err := r.write(url, 1)
		r.wantFailure(err, func(err error) bool {
			return isA[*TooSmallError](err) || isA[*FormatError](err) || isA[*ChecksumError](err)
		})
	}},
	{"the power is cut", func(r *trial) {
		// What is on the disk in that moment is what a machine would boot from. Nothing of its first MiB is there.
		held := func(*fragile) { mustNotBoot(r.t, r.disk) }
		if r.sample.noRanges {
			held = nil // the server does not see the progress of the node: see TestFirstMiBLastInOnePass
		}
		_, err := r.write(r.serve(func(http.ResponseWriter, bool) { r.f.cuts, r.f.onCut = []int64{r.at}, held }), 1)
		if r.sample.noRanges {
			r.wantFailure(err, isA[*DownloadError]) // the second time as well
			return
		}
		r.wantImage(err, -1)
	}},
}

// TestFaultsAtAnyTenth tries every fault at every tenth of every kind of image: at the end the disk contains the
// image, or it does not boot.
func TestFaultsAtAnyTenth(t *testing.T) {
	for _, s := range samples(t, guestContent(60, 6*mib, 300<<10)) {
		for _, fault := range tenthFaults {
			for tenth := range 10 {
				t.Run(fmt.Sprintf("%s, %s, %d", s.name, fault.name, tenth), func(t *testing.T) {
					t.Parallel()
					fault.try(&trial{
						t: t, sample: s, at: int64(len(s.file)) * int64(tenth) / 10, disk: usedDisk(t, 8*mib),
						f: &fragile{data: s.file, header: http.Header{"Etag": {`"one"`}}, noRanges: s.noRanges},
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
	// No zeros, which would need no room.
	for _, s := range samples(t, bytes.Repeat(append(randomBytes(63, 100<<10), bytes.Repeat([]byte("text"), 25<<8)...), 6*mib/(125<<10))) {
		handler := content(s.file)
		if s.noRanges {
			handler = whole(s.file)
		}
		url := serve(t, handler).URL
		for tenth := range 10 {
			t.Run(fmt.Sprintf("%s, %d", s.name, tenth), func(t *testing.T) {
				disk := fullDisk(t, 16*mib, 2*mib+(len(s.disk)-mib)*tenth/10)
				src := s.source(url)
				src.Fetch.Retries = 3
				_, err := Write(t.Context(), disk, src, Options{})
				if !isA[*WriteError](err) {
					t.Errorf("got error %v (%T), want a WriteError", err, err)
				}
				mustNotBoot(t, disk)
			})
		}
	}
}

// fullDisk returns a loop device of size bytes, of which room can be written to.
func fullDisk(t *testing.T, size int64, room int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", room)); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	return testenv.Loop(t, file, 512)
}
