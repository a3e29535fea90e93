package image

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/unpack"
)

// packer is a compression program, and the format of its files.
type packer struct{ command, name string }

// packers has programs for each format of unpack.Formats.
var packers = []packer{
	{"gzip -1 -c", "gzip"},
	{"gzip -9 -c", "gzip"},
	{"zstd -q -1 -c", "zstd"},
	{"zstd -q -19 --no-check -c", "zstd"},
	{"zstd -q --long=24 -c", "zstd"},
	{"xz -0 -c", "xz"},
	{"xz -8 --check=none -c", "xz"},
	{"xz -2 --check=crc32 -c", "xz"},
	{"xz -1 --check=sha256 --block-size=1MiB -T2 -c", "xz"},
	{"bzip2 -1 -c", "bzip2"},
	{"bzip2 -9 -c", "bzip2"},
	{"lz4 -q -1 -c", "lz4"},
	{"lz4 -q -9 -B4 -BD -c", "lz4"},
	{"lz4 -q -B7 --no-frame-crc --content-size -c", "lz4"},
}

func packedSource(file []byte, url string) Source {
	return Source{URLs: urls(url), Format: "unknown", Checksum: sha256Of(file)}
}

func TestPacked(t *testing.T) {
	for _, f := range unpack.Formats {
		if !slices.ContainsFunc(packers, func(p packer) bool { return p.name == f.Name }) {
			t.Errorf("packers in compressed_test.go has no program for the format %s of unpack.Formats", f.Name)
		}
	}
	content := imagetest.DiskContent(40, 5*mib+12345, 400<<10)
	for _, p := range packers {
		t.Run(p.command, func(t *testing.T) {
			t.Parallel()
			file := imagetest.Pack(t, content, p.command)
			// Concatenated files decompress to their concatenated contents.
			double := append(bytes.Clone(file), file...)
			if p.name == "xz" {
				double = append(append(bytes.Clone(file), make([]byte, 8)...), file...)
			}
			for name, c := range map[string]struct {
				file, want []byte
				handler    func([]byte) http.HandlerFunc
			}{
				"ranges":    {file, content, contentOf},
				"no ranges": {file, content, imagetest.WithoutRanges},
				"two files": {double, append(bytes.Clone(content), content...), contentOf},
			} {
				disk := imagetest.UsedDisk(t, 12*mib)
				report, err := Write(t.Context(), disk, packedSource(c.file, imagetest.Serve(t, c.handler(c.file)).URL),
					Options{PermittedFormats: []string{"raw"}})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(c.want)), c.want); !same {
					t.Errorf("%s: the disk differs from the content at byte %d of %d", name, at, len(c.want))
				}
				if report.Format != "raw" || report.Compression != p.name || report.Bytes != int64(len(c.file)) ||
					report.Size != int64(len(c.want)) {
					t.Errorf("%s: got report %+v, want %d bytes of %s that are %d",
						name, report, len(c.file), p.name, len(c.want))
				}
			}
		})
	}
}

// A file that needs more memory is written if the options allow that much.
func TestPackedMemory(t *testing.T) {
	data := imagetest.DiskContent(46, 2*mib, 100<<10)
	file := imagetest.Pack(t, data, "xz -9 -c")
	disk := imagetest.UsedDisk(t, 4*mib)
	src := packedSource(file, imagetest.Serve(t, contentOf(file)).URL)
	report, err := Write(t.Context(), disk, src, Options{UnpackMemory: 64 * mib})
	if err != nil || report.Compression != "xz" || !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
		t.Errorf("got report %+v and error %v, want the content on the disk", report, err)
	}
}

func contentOf(data []byte) http.HandlerFunc { return imagetest.Content(data) }

// A damaged or unsuitable compressed image never leaves a disk that boots.
func TestPackedFaults(t *testing.T) {
	data := imagetest.DiskContent(41, 3*mib, 200<<10)
	qcow := simpleImage(t)[:mib]
	seen := map[string]bool{}
	for _, p := range packers {
		if seen[p.name] || strings.HasPrefix(p.command, "lz4 -q -1") {
			continue // its first block is larger than the probed beginning of the file
		}
		seen[p.name] = true
		t.Run(p.command, func(t *testing.T) {
			file := imagetest.Pack(t, data, p.command)
			flipped := bytes.Clone(file)
			flipped[len(file)*2/3] ^= 4
			cut := file[:len(file)/2]
			for _, c := range []struct {
				name      string
				file      []byte
				sum       checksum.Sum
				size      int
				is        func(error) bool
				text      string
				untouched bool
			}{
				{
					"a flipped bit", flipped, sha256Of(file), 4 * mib, imagetest.IsA[*checksum.MismatchError],
					"wrong checksum", false,
				},
				{"half a file", cut, sha256Of(cut), 4 * mib, imagetest.IsA[*FormatError], p.name + " image", false},
				{
					"half a file of another checksum", cut, sha256Of(file), 4 * mib,
					imagetest.IsA[*checksum.MismatchError], "wrong checksum", false,
				},
				{
					"more than the disk takes", file, sha256Of(file), 2 * mib, imagetest.IsA[*device.TooSmallError],
					"too small", false,
				},
				{
					"a qcow2 image in it", imagetest.Pack(t, qcow, p.command),
					checksum.Sum{},
					4 * mib, imagetest.IsA[*FormatError], "image of format qcow2 inside the " + p.name, true,
				},
				{
					"packed twice", imagetest.Pack(t, file, p.command),
					checksum.Sum{},
					4 * mib, imagetest.IsA[*FormatError], "image of format " + p.name + " inside the " + p.name, true,
				},
				{
					"nothing in it", imagetest.Pack(t, nil, p.command),
					checksum.Sum{},
					4 * mib, imagetest.IsA[*FormatError], "empty", false,
				},
			} {
				disk := imagetest.UsedDisk(t, c.size)
				src := packedSource(c.file, imagetest.Serve(t, imagetest.Content(c.file)).URL)
				if c.sum.Value != "" {
					src.Checksum = c.sum
				}
				_, err := Write(t.Context(), disk, src, Options{})
				if !c.is(err) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s: got error %v (%T), want one with %q", c.name, err, err, c.text)
				}
				if c.untouched {
					imagetest.MustBeUntouched(t, disk)
				} else {
					imagetest.MustNotBoot(t, disk)
				}
			}
		})
	}
}

// Files that need too much memory or are ambiguous are refused, and do not change the disk.
func TestPackedRefusals(t *testing.T) {
	data := imagetest.DiskContent(42, 6*mib, 300<<10)
	gz := imagetest.Pack(t, data, "gzip -c")
	for _, c := range []struct {
		name, declared string
		file           []byte
		options        Options
		text           string
	}{
		{
			name: "xz with a large dictionary", file: imagetest.Pack(t, data, "xz -9 -c"),
			text: "its dictionary has 67108864 bytes",
		},
		{name: "xz with a filter", file: imagetest.Pack(t, data, "xz --x86 --lzma2 -c"), text: "more than one filter"},
		{name: "xz that is none", file: append([]byte("\xfd7zXZ\x00"), data...), text: "xz image"},
		{
			name: "zstd with a large window",
			file: imagetest.Pack(t, append(data, data...), "zstd -q --ultra -22 --long=27 -c"),
			text: "its window has 134217728 bytes, at most 16777216 are supported",
		},
		{
			name: "declared as qcow2", declared: "qcow2", file: gz,
			text: "Security: the image was declared as qcow2, but its content is gzip",
		},
		{
			name: "raw is not permitted", file: gz, options: Options{PermittedFormats: []string{"qcow2"}},
			text: "Security: image format raw is not permitted",
		},
		{
			name: "a partition table and packed at once",
			file: append(append(bytes.Clone(gz[:446]), gptImage(t)[446:]...), data...),
			text: "more than one format (gpt, gzip)",
		},
	} {
		disk := imagetest.UsedDisk(t, 16*mib)
		src := packedSource(c.file, imagetest.Serve(t, imagetest.Content(c.file)).URL)
		src.Format = c.declared
		_, err := Write(t.Context(), disk, src, c.options)
		if !imagetest.IsA[*FormatError](err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.text)
		}
		imagetest.MustBeUntouched(t, disk)
	}
	// An image that was declared as raw is not decompressed.
	disk := imagetest.UsedDisk(t, 16*mib)
	src := rawSource(gz, imagetest.Serve(t, imagetest.Content(gz)).URL)
	if _, err := Write(t.Context(), disk, src, Options{}); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(gz)), gz) {
		t.Error("the disk does not hold the file that was declared as raw")
	}
}

// Compressed data that has the signature of an MBR by chance is not a partition table.
func TestPackedWithASignature(t *testing.T) {
	file := imagetest.Pack(t, imagetest.RandomBytes(43, 2*mib), "gzip -c")
	copy(file[510:], "\x55\xaa")
	if found := detect(file); len(found) != 1 || found[0] != "gzip" {
		t.Errorf("got %v, want gzip alone", found)
	}
}

func TestPackedResume(t *testing.T) {
	data := imagetest.DiskContent(44, 9*mib, 300<<10)
	for _, command := range []string{"gzip -c", "zstd -q -c"} {
		file := imagetest.Pack(t, data, command)
		f := &imagetest.Flaky{Data: file, Header: http.Header{"Etag": {`"one"`}}}
		begun := false
		server := imagetest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "" && !begun {
				begun, f.Cuts, f.Sent = true, imagetest.Tenths(len(file)), 0
			}
			f.ServeHTTP(w, r)
		})
		src := packedSource(file, server.URL)
		src.Fetch.Retries = 12
		disk := imagetest.UsedDisk(t, 16*mib)
		report, err := Write(t.Context(), disk, src, Options{})
		if err != nil || f.Sent != int64(len(file)) || report.Resumed != 10 {
			t.Errorf("%s: got %d bytes served, report %+v and error %v, want %d bytes",
				command, f.Sent, report, err, len(file))
		}
		if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
			t.Errorf("%s: the disk does not hold the content", command)
		}
	}
}

// A file that never ends is refused when it is longer than any image for this disk.
func TestPackedEndless(t *testing.T) {
	empty := imagetest.Pack(t, nil, "gzip -c")
	disk := imagetest.UsedDisk(t, 4*mib)
	src := packedSource(empty, imagetest.Serve(t, imagetest.Endless(bytes.Repeat(empty, 10000))).URL)
	_, err := Write(t.Context(), disk, src, Options{})
	if !imagetest.IsA[*FormatError](err) || !strings.Contains(err.Error(), "are accepted at most") {
		t.Errorf("got error %v, want one about the length", err)
	}
	imagetest.MustNotBoot(t, disk)
}
