package image

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
)

// foreignSize is the length of the disk in each foreign image, and a number of cylinders.
const foreignSize = 3 * 1008 << 10

// foreignImage is an image of a format that is refused, as qemu-img makes it.
type foreignImage struct {
	name, format string
	driver       string // QEMU's name
	options      string
	end          bool // it has a signature only at its end
	parts        bool // the disk is in several files
}

var foreign = []foreignImage{
	{name: "vdi", format: "vdi", driver: "vdi"},
	{name: "static vdi", format: "vdi", driver: "vdi", options: "static=on"},
	{name: "dynamic vhd", format: "vhd", driver: "vpc", options: "subformat=dynamic"},
	{name: "dynamic vhd of exact size", format: "vhd", driver: "vpc", options: "subformat=dynamic,force_size=on"},
	{name: "fixed vhd", format: "vhd", driver: "vpc", options: "subformat=fixed", end: true},
	{
		name: "fixed vhd of exact size", format: "vhd", driver: "vpc", options: "subformat=fixed,force_size=on",
		end: true,
	},
	{name: "dynamic vhdx", format: "vhdx", driver: "vhdx", options: "subformat=dynamic"},
	{name: "fixed vhdx", format: "vhdx", driver: "vhdx", options: "subformat=fixed"},
	{name: "vmdk", format: "vmdk", driver: "vmdk", options: "subformat=monolithicSparse"},
	{name: "vmdk of version 6", format: "vmdk", driver: "vmdk", options: "subformat=monolithicSparse,compat6=on"},
	{name: "vmdk for streams", format: "vmdk", driver: "vmdk", options: "subformat=streamOptimized"},
	{name: "vmdk of a flat disk", format: "vmdk", driver: "vmdk", options: "subformat=monolithicFlat", parts: true},
	{
		name: "vmdk of sparse extents", format: "vmdk", driver: "vmdk", options: "subformat=twoGbMaxExtentSparse",
		parts: true,
	},
	{
		name: "vmdk of flat extents", format: "vmdk", driver: "vmdk", options: "subformat=twoGbMaxExtentFlat",
		parts: true,
	},
	{name: "qed", format: "qed", driver: "qed"},
}

// text returns a part of the error that refuses the image when nothing was declared and every format is permitted.
func (f foreignImage) text() string {
	command := "`qemu-img convert -f " + f.driver + " -O qcow2`"
	switch {
	case f.format == "qed":
		return "Security: images of format qed are never allowed"
	case f.parts:
		return "Security: vmdk image: it consists of a descriptor"
	case f.end:
		return "ends with the footer of a fixed VHD: convert it by " + command
	}
	return command
}

// convert converts an image by qemu-img and returns the new one.
func convert(t testing.TB, from string, data []byte, to, options string) []byte {
	t.Helper()
	testenv.Programs(t, "qemu-img")
	dir := imagetest.MemoryDir(t)
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, data, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"convert", "-f", from, "-O", to}
	if options != "" {
		args = append(args, "-o", options)
	}
	testenv.Run(t, "qemu-img", append(args, in, out)...)
	return testenv.Content(t, out)
}

// foreignDisks returns the disks that are in the foreign images: one with a partition table, and one without.
func foreignDisks(t *testing.T) map[string][]byte {
	t.Helper()
	testenv.Programs(t, "sgdisk")
	file := testenv.SparseFile(t, foreignSize)
	testenv.Run(t, "sgdisk", "-n", "1:0:0", file)
	partitioned := testenv.Content(t, file)
	copy(partitioned[mib+mib/2:], imagetest.RandomBytes(50, mib))
	return map[string][]byte{"partitioned": partitioned, "raw": imagetest.RandomBytes(51, foreignSize)}
}

// refusal returns a part of the error. late is set if the format is not known before the transfer.
func (f foreignImage) refusal(declared string, permitted []string, late bool) string {
	known := declared != "" && declared != "unknown"
	switch {
	case late && known:
		return "Security: the image was declared as " + declared
	case strings.HasPrefix(f.text(), "Security: "):
	case permitted != nil && !slices.Contains(permitted, f.format):
		return fmt.Sprintf("Security: image format %s is not permitted (permitted: raw, gpt, qcow2); "+
			"images of format %s cannot be written", f.format, f.format)
	case known && declared != f.format:
		return fmt.Sprintf("Security: the image was declared as %s, but its content is %s", declared, f.format)
	}
	return f.text()
}

// An image of a format that cannot be written is refused before the disk is changed, whatever was declared, whether or
// not an operator permits the format. If a signature is only at the end of a file and the server does not support
// ranges, it is refused when it has arrived, and the disk does not boot.
//
// Parity: K7
func TestForeignFormats(t *testing.T) {
	usual := []string{"raw", "gpt", "qcow2"}
	for content, data := range foreignDisks(t) {
		for _, f := range foreign {
			t.Run(f.name+", "+content, func(t *testing.T) {
				t.Parallel()
				file := convert(t, "raw", data, f.driver, f.options)
				disk := imagetest.UsedDisk(t, 4*mib)
				for server, handler := range map[string]func([]byte) http.HandlerFunc{
					"ranges": imagetest.Content, "no ranges": imagetest.WithoutRanges,
				} {
					url := imagetest.Serve(t, handler(file)).URL
					for _, declared := range []string{"", "unknown", f.format, "qcow2", "iso"} {
						for _, permitted := range [][]string{nil, usual, append(usual, f.format)} {
							what := fmt.Sprintf("%s, declared %q, permitted %v", server, declared, permitted)
							src := Source{URLs: urls(url), Format: declared, Checksum: sha256Of(file)}
							text := f.refusal(declared, permitted, f.end && server == "no ranges")
							_, err := Write(t.Context(), disk, src, Options{PermittedFormats: permitted})
							if !imagetest.IsA[*FormatError](err) || !strings.Contains(err.Error(), text) {
								t.Errorf("%s: got error %v, want a refusal with %q", what, err, text)
							}
							if f.end && server == "no ranges" && (declared == "" || declared == "unknown") {
								imagetest.MustNotBoot(t, disk)
								disk = imagetest.UsedDisk(t, 4*mib)
							} else {
								imagetest.MustBeUntouched(t, disk)
							}
						}
					}
				}
			})
		}
	}
}

// The command that a refusal names makes an image of the same disk that is written.
func TestForeignFormatsConverted(t *testing.T) {
	data := foreignDisks(t)["partitioned"]
	command := regexp.MustCompile("`qemu-img convert -f ([a-z]+) -O ([a-z0-9]+)`")
	for _, f := range foreign {
		if f.parts || f.format == "qed" {
			continue
		}
		file := convert(t, "raw", data, f.driver, f.options)
		_, err := Options{}.inspect("", file[:min(len(file), mib)], lastBytes(file))
		found := command.FindStringSubmatch(fmt.Sprint(err))
		if found == nil {
			t.Fatalf("%s: got error %v, want one with a command", f.name, err)
		}
		for _, to := range []string{found[2], "raw"} {
			converted := convert(t, found[1], file, to, "")
			disk := imagetest.UsedDisk(t, 4*mib)
			src := packedSource(converted, imagetest.Serve(t, imagetest.Content(converted)).URL)
			if _, err := Write(t.Context(), disk, src, Options{}); err != nil {
				t.Errorf("%s as %s: %v", f.name, to, err)
			}
			if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(data)), data); !same {
				t.Errorf("%s as %s: the disk differs at byte %d of %d", f.name, to, at, len(data))
			}
		}
	}
}

// fixedVHDImage returns a disk and the footer of a fixed VHD of qemu-img's.
func fixedVHDImage(t testing.TB, disk []byte) []byte {
	t.Helper()
	return convert(t, "raw", disk, "vpc", "subformat=fixed,force_size=on")
}

// A fixed VHD is a raw image with a footer. If it is declared as raw or gpt, or formats are not inspected, it is
// copied as it is.
//
// Parity: K7
func TestFixedVHDAsRaw(t *testing.T) {
	file := fixedVHDImage(t, foreignDisks(t)["partitioned"])
	for _, c := range []struct {
		declared string
		options  Options
		requests int64
	}{
		{declared: "raw", requests: 1},
		{declared: "gpt", requests: 1},
		{declared: "unknown", options: Options{SkipFormatInspection: true}, requests: 2},
	} {
		server := imagetest.Serve(t, imagetest.Content(file))
		disk := imagetest.UsedDisk(t, 4*mib)
		src := Source{URLs: urls(server.URL), Format: c.declared, Checksum: sha256Of(file)}
		if _, err := Write(t.Context(), disk, src, c.options); err != nil {
			t.Errorf("declared %q: %v", c.declared, err)
		}
		if at, same := imagetest.Difference(imagetest.ReadAt(t, disk, 0, len(file)), file); !same {
			t.Errorf("declared %q: the disk differs from the file at byte %d of %d", c.declared, at, len(file))
		}
		if n := server.Requests.Load(); n != c.requests {
			t.Errorf("declared %q: got %d requests, want %d", c.declared, n, c.requests)
		}
	}
}

// The footer of a fixed VHD is found in files of any length, in one of 511 bytes, and at the end of a compressed file.
func TestFixedVHDFooters(t *testing.T) {
	whole := fixedVHDImage(t, imagetest.RandomBytes(52, foreignSize))
	footer := whole[len(whole)-vhdFooterSize:]
	for _, size := range []int{1, 700, mib - vhdFooterSize, mib - vhdFooterSize/2, mib, 3*mib - 100, 3 * mib} {
		for _, length := range []int{vhdFooterSize, vhdFooterSize - 1} {
			file := append(imagetest.RandomBytes(53, size), footer[:length]...)
			packed := imagetest.Pack(t, file, "gzip -1 -c")
			for name, c := range map[string]struct {
				file      []byte
				handler   func([]byte) http.HandlerFunc
				untouched bool
			}{
				"ranges":            {file, imagetest.Content, true},
				"no ranges":         {file, imagetest.WithoutRanges, len(file) <= mib},
				"no length":         {file, imagetest.Unsized, len(file) < mib},
				"packed":            {packed, imagetest.Content, false},
				"packed, no ranges": {packed, imagetest.WithoutRanges, false},
			} {
				disk := imagetest.UsedDisk(t, 4*mib)
				url := imagetest.Serve(t, c.handler(c.file)).URL
				_, err := Write(t.Context(), disk, packedSource(c.file, url), Options{})
				if !imagetest.IsA[*FormatError](err) || !strings.Contains(err.Error(), "footer of a fixed VHD") {
					t.Errorf("footer of %d after %d bytes, %s: got error %v, want a refusal", length, size, name, err)
				}
				if c.untouched {
					imagetest.MustBeUntouched(t, disk)
				} else {
					imagetest.MustNotBoot(t, disk)
				}
			}
		}
	}
	// Elsewhere the signature is content.
	for _, after := range []int{0, 1, 1000, 2 * mib} {
		file := slices.Concat(imagetest.RandomBytes(54, mib), footer, make([]byte, vhdFooterSize+after))
		disk := imagetest.UsedDisk(t, 4*mib)
		src := packedSource(file, imagetest.Serve(t, imagetest.Content(file)).URL)
		if _, err := Write(t.Context(), disk, src, Options{}); err != nil {
			t.Errorf("signature %d bytes before the last sector: %v", after, err)
		}
	}
}

// If the server does not send the end of a file first, or another file, the end counts that has arrived.
func TestEndOfImageUnknown(t *testing.T) {
	raw := imagetest.RandomBytes(55, foreignSize)
	file := fixedVHDImage(t, raw)
	content := imagetest.Content(file)
	noTotal := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			content(w, r)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/*", mib-1))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(file[:mib]) //nolint:errcheck // the client may disconnect
	}
	for name, steps := range map[string][]http.HandlerFunc{
		"an error":           {content, imagetest.Status(503), content},
		"not found":          {content, imagetest.Status(404), content},
		"too short":          {content, truncatedRange(file), content},
		"ignored":            {content, imagetest.WithoutRanges(file), content},
		"another length":     {content, imagetest.Content(file[:len(file)-1]), content},
		"another end":        {content, imagetest.Content(append(bytes.Clone(raw), make([]byte, 512)...)), content},
		"length unknown":     {noTotal},
		"length never known": {imagetest.Unsized(file)},
	} {
		disk := imagetest.UsedDisk(t, 4*mib)
		_, err := Write(t.Context(), disk, packedSource(file, imagetest.Serve(t, steps...).URL), Options{})
		if !imagetest.IsA[*FormatError](err) || !strings.Contains(err.Error(), "footer of a fixed VHD") {
			t.Errorf("%s: got error %v, want a refusal", name, err)
		}
		imagetest.MustNotBoot(t, disk)
	}
	// Without a footer all of these images are written.
	disk := imagetest.UsedDisk(t, 4*mib)
	server := imagetest.Serve(t, imagetest.Content(raw), imagetest.Status(503), imagetest.Content(raw))
	if _, err := Write(t.Context(), disk, packedSource(raw, server.URL), Options{}); err != nil {
		t.Error(err)
	}
}

// truncatedRange announces a range and sends one byte of it.
func truncatedRange(file []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", len(file)-endSize, len(file)-1, len(file)))
		w.Header().Set("Content-Length", fmt.Sprint(endSize))
		w.WriteHeader(http.StatusPartialContent)
		w.Write([]byte{1}) //nolint:errcheck // the client may disconnect
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}
