package image

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// l1 returns the L1 table of an image.
func l1(image []byte) []byte { return image[binary.BigEndian.Uint64(image[40:]):] }

// l2 returns the first L2 table of an image.
func l2(image []byte) []byte {
	return image[binary.BigEndian.Uint64(l1(image))&0x00fffffffffffe00:]
}

func put64(b []byte, v uint64) { binary.BigEndian.PutUint64(b, v) }
func put32(b []byte, v uint32) { binary.BigEndian.PutUint32(b, v) }

// crafted are images that are invalid or unusual. Those with a text are refused with it before the disk is written
// to; the others are valid, and are written as qemu-img converts them.
var crafted = []struct {
	name    string
	options []string // of qemu-img
	change  func(image []byte) []byte
	text    string
	server  func(data []byte) http.HandlerFunc // content and whole where nil
}{
	{name: "backing file", change: func(b []byte) []byte {
		put64(b[8:], 0x200)
		put32(b[16:], 11)
		copy(b[0x200:], "/etc/shadow")
		return b
	}, text: "Security: qcow2 image: it has a backing file"},
	{
		name: "backing file of no length", change: func(b []byte) []byte { put64(b[8:], 0x200); return b },
		text: "Security: qcow2 image: it has a backing file",
	},
	{
		name: "backing file in version 2", options: []string{"-o", "compat=0.10"},
		change: func(b []byte) []byte { put64(b[8:], 0x200); b[19] = 5; return b },
		text:   "Security: qcow2 image: it has a backing file",
	},
	{
		name: "data file", change: func(b []byte) []byte { b[79] |= 1 << 2; return b },
		text: "Security: qcow2 image: its data lies in an external file",
	},
	// Bit 4 stands for extended L2 entries, which are written.
	{
		name: "feature bit 5", change: func(b []byte) []byte { b[79] |= 1 << 5; return b },
		text: "Security: qcow2 image: unknown incompatible features",
	},
	{
		name: "feature bit 63", change: func(b []byte) []byte { b[72] |= 1 << 7; return b },
		text: "Security: qcow2 image: unknown incompatible features",
	},
	{
		name: "version 4", change: func(b []byte) []byte { b[7] = 4; return b },
		text: "Security: qcow2 image: got version 4",
	},
	{
		name: "version 1", change: func(b []byte) []byte { b[7] = 1; return b },
		text: "Security: qcow2 image: got version 1",
	},
	{name: "encrypted", change: func(b []byte) []byte { b[35] = 1; return b }, text: "encrypted"},
	{name: "encrypted by LUKS", change: func(b []byte) []byte { b[35] = 2; return b }, text: "encrypted"},
	{name: "corrupt bit", change: func(b []byte) []byte { b[79] |= 1 << 1; return b }, text: "corrupt"},
	{
		name: "unknown compression", change: func(b []byte) []byte { b[79] |= 1 << 3; b[104] = 9; return b },
		text: "compression type 9",
	},
	{
		name: "compression without its bit", options: []string{"-o", "compression_type=zstd"},
		change: func(b []byte) []byte { b[79] &^= 1 << 3; return b }, text: "compression type 1",
	},
	{name: "cluster bits 30", change: func(b []byte) []byte { b[23] = 30; return b }, text: "cluster bits: got 30"},
	{name: "cluster bits 8", change: func(b []byte) []byte { b[23] = 8; return b }, text: "cluster bits: got 8"},
	{
		name: "extended L2 entries of small clusters", options: []string{"-o", "cluster_size=8k"},
		change: func(b []byte) []byte { b[79] |= 1 << 4; return b },
		text:   "cluster bits with extended L2 entries: got 13",
	},
	{
		name: "subcluster with content and zeros", options: []string{"-o", "extended_l2=on"},
		change: func(b []byte) []byte { put64(l2(b)[8:], 1<<32|1); return b }, text: "bitmap",
	},
	{
		name: "header that ends early", change: func(b []byte) []byte { put32(b[100:], 72); return b },
		text: "header length 72",
	},
	{
		name: "header without an end", change: func(b []byte) []byte { put32(b[100:], 1<<31); return b },
		text: "header length",
	},
	{
		name: "file that ends in the header", change: func(b []byte) []byte { return b[:90] },
		text: "the header has 90 bytes",
	},
	{name: "magic alone", change: func(b []byte) []byte { return b[:8] }, text: "no header found"},
	{
		name: "disk of no size", change: func(b []byte) []byte { put64(b[24:], 0); return b },
		text: "the size of its disk is 0 bytes",
	},
	{
		name: "disk of negative size", change: func(b []byte) []byte { put64(b[24:], 1<<63); return b },
		text: "the size of its disk",
	},
	{
		name:   "larger than the disk",
		change: func(b []byte) []byte { put64(b[24:], 100*mib); put32(b[36:], 1); return b }, text: "too small",
	},
	{
		name: "huge L1 table", options: []string{"-o", "cluster_size=512"},
		change: func(b []byte) []byte { put64(b[24:], 1<<40); put32(b[36:], 1<<32-1); return b },
		text:   "the L1 table has",
	},
	{name: "L1 table of more entries than needed", change: func(b []byte) []byte { put32(b[36:], 100); return b }},
	{
		name: "L1 table too small", change: func(b []byte) []byte { put32(b[36:], 0); return b },
		text: "L1 table is too small",
	},
	{
		name: "L1 table beyond the end", change: func(b []byte) []byte { put64(b[40:], 1<<24); return b },
		text: "beyond the end of the file",
	},
	{
		name: "L1 table far beyond the end", change: func(b []byte) []byte { put64(b[40:], 1<<40); return b },
		text: "bytes are accepted at most",
	},
	{
		name: "L1 table at no cluster", change: func(b []byte) []byte { put64(b[40:], 1<<16+8); return b },
		text: "L1 table at byte",
	},
	{
		name: "L1 table in the header", change: func(b []byte) []byte { put64(b[40:], 0); return b },
		text: "L1 table at byte 0",
	},
	{
		name: "L2 table not aligned", change: func(b []byte) []byte { l1(b)[6] |= 2; return b },
		text: "not a multiple of the cluster size",
	},
	{
		name: "L2 table beyond the end", change: func(b []byte) []byte { put64(l1(b), 1<<63|1<<24); return b },
		text: "beyond the end of the file",
	},
	{
		name: "file that ends in an L2 table", change: func(b []byte) []byte { return b[:len(b)-len(l2(b))+512] },
		text: "the file",
	},
	{
		name: "cluster at no cluster", change: func(b []byte) []byte { put64(l2(b), 1<<63|1<<16|512); return b },
		text: "not a multiple of the cluster size",
	},
	{
		name: "zero flag in version 2", options: []string{"-o", "compat=0.10"},
		change: func(b []byte) []byte { l2(b)[7] |= 1; return b }, text: "version 2 does not define",
	},
	{
		name: "tables far away in an endless file", change: func(b []byte) []byte { put64(b[40:], 1<<55); return b },
		text: "bytes are accepted at most", server: imagetest.Endless,
	},

	{name: "trailing junk", change: func(b []byte) []byte { return append(b, imagetest.RandomBytes(30, 300<<10)...) }},
	{
		name:   "snapshots and refcounts out of nowhere",
		change: func(b []byte) []byte { put32(b[60:], 1<<16); put64(b[64:], 1<<55); put64(b[48:], 1<<55); return b },
	},
	{name: "two clusters in one place", change: func(b []byte) []byte { copy(l2(b)[8:16], l2(b)[:8]); return b }},
	{name: "all clusters in one place", change: func(b []byte) []byte {
		for i := range 128 {
			put64(l2(b)[8*i:], binary.BigEndian.Uint64(l2(b)[8*127:]))
		}
		return b
	}},
	{name: "cluster that is the header", change: func(b []byte) []byte { put64(l2(b), 1<<63); l2(b)[6] = 0; return b }},
	{name: "cluster that is its own table", change: func(b []byte) []byte { copy(l2(b)[:8], l1(b)[:8]); return b }},
	{
		name:   "L2 table that is the L1 table",
		change: func(b []byte) []byte { put64(l1(b), 1<<63|binary.BigEndian.Uint64(b[40:])); return b },
	},
	{name: "L2 table that is the header", change: func(b []byte) []byte { put64(l1(b), 0); return b }},
	{
		name: "two parts of the disk by one L2 table", options: []string{"-o", "cluster_size=4k"},
		change: func(b []byte) []byte { copy(l1(b)[8:16], l1(b)[:8]); return b },
	},
	{name: "all packed clusters in one place", options: []string{"-c"}, change: func(b []byte) []byte {
		for i := range 128 {
			if entry := binary.BigEndian.Uint64(l2(b)[8*i:]); entry&(1<<62) != 0 {
				put64(l2(b)[8*i:], firstEntry(b))
			}
		}
		return b
	}},
	{name: "file that ends in the last cluster", change: func(b []byte) []byte { return b[:len(b)-5000] }},
	{name: "clusters beyond the end", change: func(b []byte) []byte { put64(l2(b)[8*127:], 1<<63|1<<30); return b }},
}

// firstEntry returns the first L2 entry of a compressed cluster.
func firstEntry(image []byte) uint64 {
	for i := range 128 {
		if entry := binary.BigEndian.Uint64(l2(image)[8*i:]); entry&(1<<62) != 0 {
			return entry
		}
	}
	return 0
}

// Parity: K8
func TestCrafted(t *testing.T) {
	made := map[string][]byte{}
	for _, c := range crafted {
		options := strings.Join(c.options, " ")
		if made[options] == nil {
			made[options] = simpleImage(t, c.options...)
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			image := c.change(bytes.Clone(made[options]))
			servers := []func([]byte) http.HandlerFunc{c.server}
			if c.server == nil {
				servers = []func([]byte) http.HandlerFunc{imagetest.Content, imagetest.WithoutRanges}
			}
			var want []byte
			if c.text == "" {
				plain := bytes.Clone(image)
				put32(plain[60:], 0) // without snapshots, which qemu-img would read one by one
				want = converted(t, plain)
			}
			for _, server := range servers {
				disk := imagetest.UsedDisk(t, 16*mib)
				_, err := Write(t.Context(), disk, qcowSource(image, imagetest.Serve(t, server(image)).URL), Options{})
				if c.text == "" {
					if err != nil {
						t.Fatal(err)
					}
					if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(want)), want); !same {
						t.Errorf("the disk differs from what qemu-img makes of the image at byte %d of %d",
							at, len(want))
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), c.text) ||
					!imagetest.IsA[*FormatError](err) && !imagetest.IsA[*device.TooSmallError](err) {
					t.Errorf("got error %v (%T), want a refusal with %q", err, err, c.text)
				}
				imagetest.MustBeUntouched(t, disk)
			}
		})
	}
}

// converted returns the raw disk that qemu-img makes of an image.
func converted(t *testing.T, image []byte) []byte {
	t.Helper()
	dir := imagetest.MemoryDir(t)
	qcow, raw := filepath.Join(dir, "image"), filepath.Join(dir, "want")
	if err := os.WriteFile(qcow, image, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", qcow, raw)
	return testenv.Content(t, raw)
}

// A refused image does not change the disk. A server that fails does, because the old system must not boot.
func TestOldSystemGoes(t *testing.T) {
	image := simpleImage(t)
	for name, step := range map[string]http.HandlerFunc{
		"no answer": imagetest.Status(503), "not there": imagetest.Status(404),
		"truncated": imagetest.Truncated(image, 1000),
	} {
		disk := imagetest.UsedDisk(t, 16*mib)
		_, err := Write(t.Context(), disk, qcowSource(image, imagetest.Serve(t, step).URL), Options{})
		if !imagetest.IsA[*fetch.DownloadError](err) {
			t.Errorf("%s: got error %v, want a DownloadError", name, err)
		}
		imagetest.MustNotBoot(t, disk)
	}
	// A server that works after two failures.
	disk := imagetest.UsedDisk(t, 16*mib)
	src := qcowSource(image,
		imagetest.Serve(t, imagetest.Status(503), imagetest.Status(503), imagetest.Content(image)).URL)
	src.Fetch.Retries = 1
	if _, err := Write(t.Context(), disk, src, Options{}); err != nil {
		t.Error(err)
	}
	if want := converted(t, image); !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(want)), want) {
		t.Error("the disk does not hold the image")
	}
}
