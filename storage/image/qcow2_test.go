package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
)

// guestDisk writes such content to a file.
func guestDisk(t testing.TB, seed uint64, size int) string {
	t.Helper()
	name := filepath.Join(imagetest.MemoryDir(t), "guest.raw")
	if err := os.WriteFile(name, imagetest.DiskContent(seed, size, 400<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// corpus are images made by qemu-img and qemu-io: the options of qemu-img convert, the size of the disk, and commands
// of qemu-io that are run on the image afterwards.
var corpus = []struct {
	name     string
	options  []string
	size     int
	commands []string
	snapshot bool
}{
	{name: "v3", options: []string{"-o", "compat=1.1"}, size: 11 * mib},
	{name: "v2", options: []string{"-o", "compat=0.10"}, size: 11 * mib},
	{name: "v2 zlib", options: []string{"-c", "-o", "compat=0.10"}, size: 11 * mib},
	{name: "v3 zlib", options: []string{"-c", "-o", "compat=1.1"}, size: 11 * mib},
	{name: "v3 zstd", options: []string{"-c", "-o", "compression_type=zstd"}, size: 11 * mib},
	{name: "v3 zstd, not compressed", options: []string{"-o", "compression_type=zstd"}, size: 5 * mib},
	{name: "odd size", options: nil, size: 7*mib + 3*512},
	{name: "odd size, zlib", options: []string{"-c"}, size: 7*mib + 3*512},
	{name: "size of no sector", options: nil, size: 3*mib + 100},
	{name: "less than a MiB", options: nil, size: 300 << 10},
	{name: "less than a MiB, zstd", options: []string{"-c", "-o", "compression_type=zstd"}, size: 300 << 10},
	{name: "one sector", options: nil, size: 512},
	{name: "512-byte clusters", options: []string{"-o", "cluster_size=512"}, size: 3*mib + 512},
	{name: "512-byte clusters, zlib", options: []string{"-c", "-o", "cluster_size=512"}, size: 3*mib + 512},
	{name: "4k clusters", options: []string{"-o", "cluster_size=4k"}, size: 9 * mib},
	{name: "4k clusters, zstd", options: []string{"-c", "-o", "cluster_size=4k,compression_type=zstd"}, size: 9 * mib},
	{name: "1M clusters", options: []string{"-o", "cluster_size=1M"}, size: 11 * mib},
	{name: "2M clusters", options: []string{"-o", "cluster_size=2M"}, size: 13*mib + 1024},
	{name: "2M clusters, zlib", options: []string{"-c", "-o", "cluster_size=2M"}, size: 13*mib + 1024},
	{
		name: "2M clusters, zstd", options: []string{"-c", "-o", "cluster_size=2M,compression_type=zstd"},
		size: 13*mib + 1024,
	},
	{name: "metadata preallocated", options: []string{"-o", "preallocation=metadata"}, size: 12 * mib},
	{name: "fully preallocated", options: []string{"-o", "preallocation=full"}, size: 12 * mib},
	{name: "out of order", options: []string{"-W", "-m", "16"}, size: 11 * mib},
	{name: "out of order, zlib", options: []string{"-W", "-m", "16", "-c"}, size: 11 * mib},
	{
		name: "zero clusters", options: []string{"-o", "compat=1.1"}, size: 16 * mib,
		commands: []string{"write -z 1M 2M", "write -z 5000k 130k", "write -z -u 9M 1M", "discard 12M 1M"},
	},
	{
		name: "discarded in v2", options: []string{"-o", "compat=0.10"}, size: 16 * mib,
		commands: []string{"discard 2M 3M", "write -P 7 3M 64k"},
	},
	{
		name: "scattered", options: []string{"-o", "cluster_size=8k"}, size: 16 * mib,
		commands: []string{
			"discard 0 16M", "write -P 1 15M 64k", "write -P 2 1M 8k", "write -P 3 1000k 24k", "write -P 4 9M 1M",
			"write -P 5 0 512", "write -P 6 14M 100k",
		},
	},
	{
		name: "plain and compressed mixed", options: []string{"-c"}, size: 16 * mib,
		commands: []string{"write -P 9 3M 200k", "write -z 6M 1M", "write -c -P 8 10M 64k"},
	},
	{
		name: "internal snapshot", size: 16 * mib, snapshot: true,
		commands: []string{"write -P 3 2M 3M", "write -z 8M 1M"},
	},
	{
		name: "lazy refcounts", options: []string{"-o", "lazy_refcounts=on"}, size: 6 * mib,
		commands: []string{"write -P 1 0 1M"},
	},
	{
		name: "extended L2", options: []string{"-o", "extended_l2=on"}, size: 11*mib + 3*512,
		commands: []string{"write -z 1M 70k", "discard 3M 33k", "write -P 3 5000k 3k"},
	},
	{
		name: "extended L2, zlib", options: []string{"-c", "-o", "extended_l2=on,cluster_size=16k"}, size: 7 * mib,
		commands: []string{"write -P 3 1000k 5k"},
	},
	{name: "refcounts of one bit", options: []string{"-o", "refcount_bits=1"}, size: 6 * mib},
}

// makeImage builds one image of the corpus and returns it with the raw disk that qemu-img makes of it.
func makeImage(t *testing.T, i int) (image, want []byte) {
	t.Helper()
	c := corpus[i]
	dir := imagetest.MemoryDir(t)
	qcow, raw := filepath.Join(dir, "image.qcow2"), filepath.Join(dir, "want.raw")
	args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, c.options...)
	testenv.Run(t, "qemu-img", append(args, guestDisk(t, uint64(i), c.size), qcow)...)
	if c.snapshot {
		testenv.Run(t, "qemu-img", "snapshot", "-c", "before", qcow)
	}
	for _, command := range c.commands {
		testenv.Run(t, "qemu-io", "-f", "qcow2", "-c", command, qcow)
	}
	testenv.Run(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", qcow, raw)
	return testenv.Content(t, qcow), testenv.Content(t, raw)
}

func qcowSource(image []byte, url string) Source {
	return Source{URLs: urls(url), Format: "qcow2", Checksum: sha256Of(image)}
}

func TestUnpackLikeQemuImg(t *testing.T) {
	testenv.Programs(t, "qemu-img", "qemu-io")
	for i, c := range corpus {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			image, want := makeImage(t, i)
			for _, way := range ways {
				way.try(t, c.name, image, want)
			}
		})
	}
}

func TestUnpackToLoopDevices(t *testing.T) {
	testenv.Programs(t, "qemu-img", "qemu-io")
	for _, sector := range []int{512, 4096} {
		for _, i := range []int{3, 6, 24} {
			t.Run(fmt.Sprint(sector, " ", corpus[i].name), func(t *testing.T) {
				image, want := makeImage(t, i)
				disk := testenv.Loop(t, imagetest.UsedDisk(t, 40*mib), sector)
				if _, err := Write(t.Context(), disk,
					qcowSource(image, imagetest.Serve(t, imagetest.Content(image)).URL), Options{}); err != nil {
					t.Fatal(err)
				}
				if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(want)), want); !same {
					t.Errorf("the disk differs from what qemu-img makes of the image at byte %d", at)
				}
			})
		}
	}
}

// simpleImage is a qcow2 image that can be changed by hand.
func simpleImage(t *testing.T, options ...string) []byte {
	t.Helper()
	testenv.Programs(t, "qemu-img")
	name := filepath.Join(imagetest.MemoryDir(t), "image.qcow2")
	args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...)
	testenv.Run(t, "qemu-img", append(args, guestDisk(t, 99, 8*mib), name)...)
	return testenv.Content(t, name)
}

// firstCompressed returns the offset of the first compressed cluster of an image.
func firstCompressed(t *testing.T, image []byte) int64 {
	t.Helper()
	table := image[binary.BigEndian.Uint64(l1(image))&0x00fffffffffffe00:]
	for i := range 128 {
		if entry := binary.BigEndian.Uint64(table[8*i:]); entry&(1<<62) != 0 {
			return int64(entry & (1<<54 - 1))
		}
	}
	t.Fatal("the image has no compressed cluster")
	return 0
}

func TestUnpackFaults(t *testing.T) {
	image := simpleImage(t)
	packed := simpleImage(t, "-c")
	flip := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0x10
		return b
	}
	spoilt := bytes.Clone(packed)
	copy(spoilt[firstCompressed(t, packed):], bytes.Repeat([]byte{0xff}, 40))
	truncatedTail := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			imagetest.Content(image)(w, r)
			return
		}
		imagetest.Truncated(image, 5*mib)(w, r)
	}
	endlessTail := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			imagetest.Content(image)(w, r)
			return
		}
		if _, err := w.Write(image); err == nil {
			imagetest.Endless(make([]byte, mib))(w, r)
		}
	}
	for _, c := range []struct {
		name    string
		sum     checksum.Sum
		handler http.HandlerFunc
		is      func(error) bool
		text    string
	}{
		{
			"flipped bit in a cluster", sha256Of(image), imagetest.Content(flip(image, len(image)-100)),
			imagetest.IsA[*checksum.MismatchError], "wrong checksum",
		},
		{
			"flipped bits in compressed data", sha256Of(packed), imagetest.Content(spoilt),
			imagetest.IsA[*checksum.MismatchError], "wrong checksum",
		},
		{
			"compressed data that makes no sense", sha256Of(spoilt), imagetest.Content(spoilt),
			imagetest.IsA[*FormatError], "compressed cluster",
		},
		{"endless", sha256Of(image), endlessTail, imagetest.IsA[*FormatError], "bytes are accepted at most"},
		{
			"truncated", sha256Of(image), truncatedTail, imagetest.IsA[*fetch.DownloadError],
			"before the whole file had arrived",
		},
		{
			"tables of another file", sha256Of(image),
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "" && !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") {
					swapped := bytes.Clone(image)
					table := binary.BigEndian.Uint64(l1(image)) & 0x00fffffffffffe00
					one, two := swapped[table:][:8], swapped[table+8:][:8]
					hold := bytes.Clone(one)
					copy(one, two)
					copy(two, hold)
					imagetest.Content(swapped)(w, r)
					return
				}
				imagetest.Content(image)(w, r)
			},
			imagetest.IsA[*fetch.DownloadError], "changed between two requests",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := imagetest.UsedDisk(t, 16*mib)
			src := qcowSource(nil, imagetest.Serve(t, c.handler).URL)
			src.Checksum = c.sum
			_, err := Write(t.Context(), disk, src, Options{})
			if !c.is(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got error %v (%T), want one with %q", err, err, c.text)
			}
			imagetest.MustNotBoot(t, disk)
		})
	}
}
