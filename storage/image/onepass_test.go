package image

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/device"
	"ironroot/storage/image/qcow2"
)

// way is a way in which a qcow2 image can arrive.
type way struct {
	name    string
	handler func(data []byte) http.HandlerFunc
	spooled int // bytes that the spool keeps in memory
	space   int // of the disk beyond the end of the image, in bytes; 0: enough for the whole file
	// once is set if the server sends every byte once. Otherwise the image may be fetched again.
	once bool
}

var ways = []way{
	{name: "ranges", handler: imagetest.Content, spooled: qcow2.SpoolMemory, space: 3 * mib},
	{name: "no ranges", handler: imagetest.WithoutRanges, spooled: qcow2.SpoolMemory, once: true},
	{name: "no ranges, spool on the disk", handler: imagetest.WithoutRanges, spooled: 1000, once: true},
	{name: "no ranges, no space for a spool", handler: imagetest.WithoutRanges, spooled: 1000, space: mib},
}

// try writes an image and compares the disk with want.
func (way way) try(t *testing.T, what string, image, want []byte) {
	t.Helper()
	if way.space == 0 {
		way.space = len(image) + 2*device.EndSize
	}
	disk := imagetest.UsedDisk(t, len(want)+way.space)
	var sent atomic.Int64
	server := imagetest.Serve(t, counting(&sent, way.handler(image)))
	report, err := writeSpooled(t, disk, qcowSource(image, server.URL), way.spooled)
	if err != nil {
		t.Fatalf("%s, %s: %v", what, way.name, err)
	}
	if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(want)), want); !same {
		t.Errorf("%s, %s: the disk differs from what qemu-img makes of the image at byte %d of %d",
			what, way.name, at, len(want))
	}
	if report.Size != int64(len(want)) || report.Bytes != int64(len(image)) || report.Format != "qcow2" {
		t.Errorf("%s, %s: got report %+v, want size %d, bytes %d", what, way.name, report, len(want), len(image))
	}
	if n := server.Requests.Load(); way.once && (n != 1 || sent.Load() != int64(len(image))) {
		t.Errorf("%s, %s: got %d requests and %d bytes served, want one of %d",
			what, way.name, n, sent.Load(), len(image))
	}
	mustNotHold(t, disk, len(want))
}

// mustNotHold fails unless all bytes behind an image are zero or unchanged on a used disk.
func mustNotHold(t *testing.T, disk string, image int) {
	t.Helper()
	rest := testenv.Content(t, disk)[image:]
	if at := slices.IndexFunc(rest, func(b byte) bool { return b != 0 && b != 0xa5 }); at >= 0 {
		t.Errorf("%s has content %d bytes beyond the end of the image", disk, at)
	}
}

// writeSpooled is Write with a spool that keeps spooled bytes in memory.
func writeSpooled(t *testing.T, disk string, src Source, spooled int) (Report, error) {
	t.Helper()
	w, err := newWriter(disk, src, Options{Log: imagetest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	w.spoolMemory = spooled
	return w.write(t.Context())
}

// counting adds the bytes that a handler sends to sent.
func counting(sent *atomic.Int64, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { h(&countingWriter{w, sent}, r) }
}

type countingWriter struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p))) // before the client can receive all of them
	return c.ResponseWriter.Write(p)
}

func (c *countingWriter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// tablesMoved returns an image with its L1 table, its L2 tables or both at its end.
func tablesMoved(image []byte, first, second, secondBefore bool) []byte {
	b := bytes.Clone(image)
	cluster := 1 << binary.BigEndian.Uint32(b[20:])
	move := func(off, n int) int {
		to := (len(b) + cluster - 1) / cluster * cluster
		b = append(append(b, make([]byte, to-len(b))...), b[off:off+n]...)
		b = append(b, make([]byte, -len(b)&(cluster-1))...)
		clear(b[off : off+n]) // no longer used
		return to
	}
	entries := int(binary.BigEndian.Uint32(b[36:]))
	moveSecond := func() {
		for i := range entries {
			if entry := binary.BigEndian.Uint64(l1(b)[8*i:]); entry != 0 {
				to := move(int(entry&0x00fffffffffffe00), cluster)
				put64(l1(b)[8*i:], 1<<63|uint64(to))
			}
		}
	}
	if second && secondBefore {
		moveSecond()
	}
	if first {
		to := move(int(binary.BigEndian.Uint64(b[40:])), 8*entries)
		put64(b[40:], uint64(to))
	}
	if second && !secondBefore {
		moveSecond()
	}
	return b
}

// Tables can be anywhere in a file. The content before them is spooled.
func TestTablesMoved(t *testing.T) {
	for _, options := range []string{
		"-o cluster_size=512", "-o cluster_size=2M", "-o extended_l2=on,cluster_size=16k",
		"-c", "-c -o compression_type=zstd,cluster_size=4k",
	} {
		image := simpleImage(t, strings.Fields(options)...)
		want := converted(t, image)
		for name, moved := range map[string][]byte{
			"L1 last":         tablesMoved(image, true, false, false),
			"L2 last":         tablesMoved(image, false, true, false),
			"L1 and then L2":  tablesMoved(image, true, true, false),
			"L2 and then L1":  tablesMoved(image, true, true, true),
			"L1 last, a tail": append(tablesMoved(image, true, false, false), imagetest.RandomBytes(50, 5*mib)...),
		} {
			for _, way := range ways {
				way.try(t, options+" "+name, moved, want)
			}
		}
	}
}

// Later L2 tables of an image name clusters between the clusters of earlier tables.
func TestLaterTablesNameEarlierClusters(t *testing.T) {
	testenv.Programs(t, "qemu-img", "qemu-io")
	for _, options := range []string{
		"cluster_size=512", "cluster_size=4k,compression_type=zstd", "cluster_size=4k,compat=0.10",
	} {
		for _, packed := range []string{"", "-c"} {
			dir := imagetest.MemoryDir(t)
			raw, name := filepath.Join(dir, "raw"), filepath.Join(dir, "image.qcow2")
			data := imagetest.RandomBytes(51, 9*mib) // several compressed clusters fit into one
			for i := range data {
				data[i] &= 7
			}
			if err := os.WriteFile(raw, data, 0o600); err != nil {
				t.Fatal(err)
			}
			testenv.Run(t, "qemu-img",
				append(strings.Fields("convert -f raw -O qcow2 -o "+options+" "+packed), raw, name)...)
			testenv.Run(t, "qemu-img", "snapshot", "-c", "one", name)
			// New tables at the end name clusters from before and new ones.
			for i := range 4 {
				at := []string{"0", "2100k", "5M", "8M"}[i]
				//nolint:errcheck // not all can be written compressed
				exec.Command("qemu-io", "-f", "qcow2", "-c", "write -P 5 "+at+" 12k", "-c",
					"write -c -P 6 "+at+" 4k", name).Run()
			}
			image := testenv.Content(t, name)
			want := converted(t, image)
			for _, way := range ways {
				way.try(t, options+" "+packed, image, want)
			}
		}
	}
}

// A cluster that two tables name is no longer available for the second one: then the image is fetched again.
func TestClusterOfTwoTables(t *testing.T) {
	testenv.Programs(t, "qemu-img")
	for _, options := range []string{"-o cluster_size=4k", "-c -o cluster_size=4k"} {
		name := filepath.Join(imagetest.MemoryDir(t), "image.qcow2")
		testenv.Run(t, "qemu-img",
			append(strings.Fields("convert -f raw -O qcow2 "+options), guestDisk(t, 53, 24*mib), name)...)
		image := testenv.Content(t, name)
		table := func(i int) []byte {
			return image[binary.BigEndian.Uint64(l1(image)[8*i:])&0x00fffffffffffe00:][:4096]
		}
		copy(table(11), table(0))
		want := converted(t, image)
		server := imagetest.Serve(t, imagetest.WithoutRanges(image))
		disk := imagetest.UsedDisk(t, len(want)+24*mib)
		report, err := Write(t.Context(), disk, qcowSource(image, server.URL), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(want)), want); !same {
			t.Errorf("%s: the disk differs from what qemu-img makes of the image at byte %d of %d",
				options, at, len(want))
		}
		mustNotHold(t, disk, len(want))
		if n := server.Requests.Load(); n < 3 || report.Written > int64(len(want)) {
			t.Errorf("%s: got %d requests and report %+v, want the image fetched again", options, n, report)
		}
	}
}

// Raw and compressed images from a server without ranges are probed and written from one response.
func TestOneResponse(t *testing.T) {
	data := imagetest.DiskContent(52, 6*mib, 300<<10)
	for name, file := range map[string][]byte{
		"raw": data, "gzip": imagetest.Pack(t, data, "gzip -1 -c"), "short": data[:5000],
	} {
		var sent atomic.Int64
		server := imagetest.Serve(t, counting(&sent, imagetest.WithoutRanges(file)))
		disk := imagetest.UsedDisk(t, 8*mib)
		if _, err := Write(t.Context(), disk, packedSource(file, server.URL), Options{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := data[:min(len(data), max(len(file), 5000))]
		if name != "gzip" && !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(file)), file) ||
			name == "gzip" && !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
			t.Errorf("%s: the disk does not hold the image of %d bytes", name, len(want))
		}
		if server.Requests.Load() != 1 || sent.Load() != int64(len(file)) {
			t.Errorf("%s: got %d requests and %d bytes served, want one of %d",
				name, server.Requests.Load(), sent.Load(), len(file))
		}
	}
}

// While an image arrives, the disk has neither the beginning of the old system nor the beginning of the new one.
func TestFirstMiBLastInOnePass(t *testing.T) {
	testenv.Programs(t, "qemu-img")
	dir := imagetest.MemoryDir(t)
	raw, qcow := filepath.Join(dir, "raw"), filepath.Join(dir, "image.qcow2")
	data := imagetest.RandomBytes(54, 56*mib)
	if err := os.WriteFile(raw, data, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow)
	image := testenv.Content(t, qcow)
	disk := imagetest.UsedDisk(t, 64*mib)
	server := imagetest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(image)))
		for at := 0; at < len(image); at += 8 * mib {
			if at >= 40*mib { // more than sockets buffer: the node has read beyond the beginning that it probes
				imagetest.MustNotBoot(t, disk)
			}
			w.Write(image[at:min(at+8*mib, len(image))]) //nolint:errcheck // the client may disconnect
		}
	})
	if _, err := Write(t.Context(), disk, qcowSource(image, server.URL), Options{}); err != nil {
		t.Fatal(err)
	}
	if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(data)), data); !same {
		t.Errorf("the disk differs from the image at byte %d", at)
	}
}

// Images as long as the disk leave no space for a spool, and their end is written last. The size of the disk need not
// be aligned for O_DIRECT.
func TestImageAsLongAsTheDisk(t *testing.T) {
	testenv.Programs(t, "qemu-img")
	for _, size := range []int{7 * mib, 7*mib + 3*512, mib + 5*512, mib, 3 * 512} {
		for _, options := range []string{"", "-c"} {
			raw, name := guestDisk(t, uint64(size), size), filepath.Join(imagetest.MemoryDir(t), "image.qcow2")
			testenv.Run(t, "qemu-img", append(strings.Fields("convert -f raw -O qcow2 "+options), raw, name)...)
			image, want := testenv.Content(t, name), testenv.Content(t, raw)
			for server, handler := range map[string]func([]byte) http.HandlerFunc{
				"ranges": imagetest.Content, "no ranges": imagetest.WithoutRanges,
			} {
				disk := imagetest.UsedDisk(t, size)
				_, err := Write(t.Context(), disk, qcowSource(image, imagetest.Serve(t, handler(image)).URL), Options{})
				if err != nil {
					t.Errorf("%d bytes, %q, %s: %v", size, options, server, err)
				} else if at, same := imagetest.Difference(testenv.Content(t, disk), want); !same {
					t.Errorf("%d bytes, %q, %s: the disk differs from the image at byte %d", size, options, server, at)
				}
			}
		}
	}
}
