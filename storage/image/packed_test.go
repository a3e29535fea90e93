package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/testenv"
)

// pack returns what a packing program makes of data on its standard input.
func pack(t testing.TB, data []byte, command string) []byte {
	t.Helper()
	args := strings.Fields(command)
	testenv.Programs(t, args[0])
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var out, message bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &message
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, message.Bytes())
	}
	return out.Bytes()
}

// packers are programs, and how what they make is told by.
var packers = []struct{ command, name string }{
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
	return Source{URLs: []string{url}, Format: "unknown", Checksum: sha256Of(file)}
}

func TestPacked(t *testing.T) {
	content := guestContent(40, 5*mib+12345, 400<<10)
	for _, p := range packers {
		t.Run(p.command, func(t *testing.T) {
			file := pack(t, content, p.command)
			// One file behind another unpacks to one content behind the other.
			double := append(bytes.Clone(file), file...)
			if p.name == "xz" {
				double = append(append(bytes.Clone(file), make([]byte, 8)...), file...)
			}
			for name, c := range map[string]struct {
				file, want []byte
				handler    func([]byte) http.HandlerFunc
			}{
				"ranges":    {file, content, contentOf},
				"no ranges": {file, content, whole},
				"two files": {double, append(bytes.Clone(content), content...), contentOf},
			} {
				disk := usedDisk(t, 12*mib)
				report, err := Write(t.Context(), disk, packedSource(c.file, serve(t, c.handler(c.file)).URL), Options{PermittedFormats: []string{"raw"}})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if at, same := difference(readAt(t, disk, 0, len(c.want)), c.want); !same {
					t.Errorf("%s: the disk differs from the content at byte %d of %d", name, at, len(c.want))
				}
				if report.Format != "raw" || report.Packed != p.name || report.Bytes != int64(len(c.file)) || report.Size != int64(len(c.want)) {
					t.Errorf("%s: got report %+v, want %d bytes of %s that are %d", name, report, len(c.file), p.name, len(c.want))
				}
			}
		})
	}
}

func contentOf(data []byte) http.HandlerFunc { return content(data) }

// What is packed is not always what it should be, and never leaves a disk that boots.
func TestPackedFaults(t *testing.T) {
	data := guestContent(41, 3*mib, 200<<10)
	qcow := simpleImage(t)[:mib]
	seen := map[string]bool{}
	for _, p := range packers {
		if seen[p.name] || strings.HasPrefix(p.command, "lz4 -q -1") {
			continue // its blocks are too large to see into the first one before all of it is there
		}
		seen[p.name] = true
		t.Run(p.command, func(t *testing.T) {
			file := pack(t, data, p.command)
			flipped := bytes.Clone(file)
			flipped[len(file)*2/3] ^= 4
			cut := file[:len(file)/2]
			for _, c := range []struct {
				name      string
				file      []byte
				sum       Checksum
				size      int
				is        func(error) bool
				text      string
				untouched bool
			}{
				{"a flipped bit", flipped, sha256Of(file), 4 * mib, isA[*ChecksumError], "wrong checksum", false},
				{"half a file", cut, sha256Of(cut), 4 * mib, isA[*FormatError], p.name + " image", false},
				{"half a file of another checksum", cut, sha256Of(file), 4 * mib, isA[*ChecksumError], "wrong checksum", false},
				{"more than the disk takes", file, sha256Of(file), 2 * mib, isA[*TooSmallError], "too small", false},
				{"a qcow2 image in it", pack(t, qcow, p.command), Checksum{}, 4 * mib, isA[*FormatError], "image of format qcow2 inside the " + p.name, true},
				{"packed twice", pack(t, file, p.command), Checksum{}, 4 * mib, isA[*FormatError], "image of format " + p.name + " inside the " + p.name, true},
				{"nothing in it", pack(t, nil, p.command), Checksum{}, 4 * mib, isA[*FormatError], "empty", false},
			} {
				disk := usedDisk(t, c.size)
				src := packedSource(c.file, serve(t, content(c.file)).URL)
				if c.sum.Value != "" {
					src.Checksum = c.sum
				}
				_, err := Write(t.Context(), disk, src, Options{})
				if !c.is(err) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s: got error %v (%T), want one with %q", c.name, err, err, c.text)
				}
				if c.untouched {
					mustBeUntouched(t, disk)
				} else {
					mustNotBoot(t, disk)
				}
			}
		})
	}
}

// Files that would need more memory than there may be, or that nobody can say the meaning of, cost the disk nothing.
func TestPackedRefusals(t *testing.T) {
	data := guestContent(42, 6*mib, 300<<10)
	gz := pack(t, data, "gzip -c")
	for _, c := range []struct {
		name, declared string
		file           []byte
		options        Options
		text           string
	}{
		{name: "xz with a large dictionary", file: pack(t, data, "xz -9 -c"), text: "its dictionary has 67108864 bytes"},
		{name: "xz with a filter", file: pack(t, data, "xz --x86 --lzma2 -c"), text: "more than one filter"},
		{name: "xz that is none", file: append([]byte(xzMagic), data...), text: "xz image"},
		{name: "zstd with a large window", file: pack(t, append(data, data...), "zstd -q --ultra -22 --long=27 -c"), text: "window size exceeded"},
		{name: "declared as qcow2", declared: "qcow2", file: gz, text: "Security: the image was declared as qcow2, but its content is gzip"},
		{name: "raw is not permitted", file: gz, options: Options{PermittedFormats: []string{"qcow2"}}, text: "Security: image format raw is not permitted"},
		{name: "a partition table and packed at once", file: append(append(bytes.Clone(gz[:446]), gptImage(t)[446:]...), data...), text: "more than one format (gpt, gzip)"},
	} {
		disk := usedDisk(t, 16*mib)
		src := packedSource(c.file, serve(t, content(c.file)).URL)
		src.Format = c.declared
		_, err := Write(t.Context(), disk, src, c.options)
		if !isA[*FormatError](err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.text)
		}
		mustBeUntouched(t, disk)
	}
	// What was declared as raw is not unpacked.
	disk := usedDisk(t, 16*mib)
	if _, err := Write(t.Context(), disk, rawSource(gz, serve(t, content(gz)).URL), Options{}); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(readAt(t, disk, 0, len(gz)), gz) {
		t.Error("the disk does not hold the file that was declared as raw")
	}
}

// A signature where an MBR has it is an accident in packed data, unless a table stands before it.
func TestPackedWithASignature(t *testing.T) {
	file := pack(t, randomBytes(43, 2*mib), "gzip -c")
	copy(file[510:], "\x55\xaa")
	if found := detect(file); len(found) != 1 || found[0] != "gzip" {
		t.Errorf("got %v, want gzip alone", found)
	}
}

func TestPackedResume(t *testing.T) {
	data := guestContent(44, 9*mib, 300<<10)
	for _, command := range []string{"gzip -c", "zstd -q -c"} {
		file := pack(t, data, command)
		f := &fragile{data: file, header: http.Header{"Etag": {`"one"`}}}
		begun := false
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "" && !begun {
				begun, f.cuts, f.sent = true, tenths(len(file)), 0
			}
			f.ServeHTTP(w, r)
		})
		src := packedSource(file, server.URL)
		src.Fetch.Retries = 12
		disk := usedDisk(t, 16*mib)
		report, err := Write(t.Context(), disk, src, Options{})
		if err != nil || f.sent != int64(len(file)) || report.Resumed != 10 {
			t.Errorf("%s: got %d bytes served, report %+v and error %v, want %d bytes", command, f.sent, report, err, len(file))
		}
		if !bytes.Equal(readAt(t, disk, 0, len(data)), data) {
			t.Errorf("%s: the disk does not hold the content", command)
		}
	}
}

// A server that never ends is left when the file has become longer than any image for this disk.
func TestPackedEndless(t *testing.T) {
	empty := pack(t, nil, "gzip -c")
	disk := usedDisk(t, 4*mib)
	src := packedSource(empty, serve(t, endless(bytes.Repeat(empty, 10000))).URL)
	if _, err := Write(t.Context(), disk, src, Options{}); !isA[*FormatError](err) || !strings.Contains(err.Error(), "are accepted at most") {
		t.Errorf("got error %v, want one about the length", err)
	}
	mustNotBoot(t, disk)
}

// FuzzXZ reads arbitrary bytes as a file of the .xz format. What the xz program packs is read back as it was.
func FuzzXZ(f *testing.F) {
	for _, name := range []string{"blocks.xz", "sha256.xz", "padded.xz"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		one, err := io.ReadAll(io.LimitReader(newXZ(bytes.NewReader(file)), mib))
		if err != nil || len(one) == mib {
			return
		}
		// A second stream behind it adds its content and nothing else.
		two, err := io.ReadAll(newXZ(bytes.NewReader(append(bytes.Clone(file), file...))))
		if err != nil || !bytes.Equal(two, append(bytes.Clone(one), one...)) {
			t.Errorf("twice the file: got %d bytes and error %v, want twice %d bytes", len(two), err, len(one))
		}
		if len(file) > 40 {
			if _, err := io.ReadAll(newXZ(bytes.NewReader(file[:len(file)-1]))); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("without its last byte: got error %v, want one", err)
			}
		}
	})
}

func BenchmarkUnpack(b *testing.B) {
	data := guestContent(45, 64*mib, 700<<10)
	for _, command := range []string{"gzip -c", "zstd -q -c", "xz -6 -c", "bzip2 -c", "lz4 -q -c"} {
		file := pack(b, data, command)
		b.Run(command, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				u, err := packingOf(detect(file)[0]).unpack(bytes.NewReader(file))
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, u); err != nil || n != int64(len(data)) {
					b.Fatal(fmt.Errorf("%d bytes: %w", n, err))
				}
				u.free()
			}
		})
	}
}
