package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/device"
)

// qemuImage returns the first MiB of an image made by qemu-img.
func qemuImage(t *testing.T, format string, options ...string) []byte {
	t.Helper()
	testenv.Programs(t, "qemu-img")
	name := filepath.Join(t.TempDir(), "image")
	testenv.Run(t, "qemu-img", append(append([]string{"create", "-q", "-f", format}, options...), name, "8M")...)
	data := testenv.Content(t, name)
	return data[:min(len(data), device.HeadSize)]
}

// gptImage returns the first MiB of a disk partitioned by sgdisk.
func gptImage(t *testing.T) []byte {
	t.Helper()
	testenv.Programs(t, "sgdisk")
	disk := testenv.SparseFile(t, 8*mib)
	testenv.Run(t, "sgdisk", "-n", "1:0:0", disk)
	return testenv.Content(t, disk)[:device.HeadSize]
}

func fatImage(t *testing.T) []byte {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat")
	disk := testenv.SparseFile(t, 8*mib)
	testenv.Run(t, "mkfs.vfat", disk)
	return testenv.Content(t, disk)[:device.HeadSize]
}

// with returns a MiB of zeros with text at an offset.
func with(off int, text string) []byte {
	b := make([]byte, device.HeadSize)
	copy(b[off:], text)
	return b
}

// Parity: K7
func TestDetect(t *testing.T) {
	luks := with(0, "LUKS\xba\xbe\x00\x01")
	var tested []string
	for _, c := range []struct {
		name string
		head []byte
		want []string
	}{
		{"raw", imagetest.RandomBytes(1, device.HeadSize), nil},
		{"zeros", make([]byte, device.HeadSize), nil},
		{"one byte", []byte{1}, nil},
		{"fat file system", fatImage(t), nil},
		{"qcow2", qemuImage(t, "qcow2"), []string{"qcow2"}},
		{"qed", qemuImage(t, "qed"), []string{"qed"}},
		{"vhd", qemuImage(t, "vpc"), []string{"vhd"}},
		{"fixed vhd", qemuImage(t, "vpc", "-o", "subformat=fixed"), nil},
		{"vhdx", qemuImage(t, "vhdx"), []string{"vhdx"}},
		{"vmdk", qemuImage(t, "vmdk"), []string{"vmdk"}},
		{"vmdk descriptor", qemuImage(t, "vmdk", "-o", "subformat=monolithicFlat"), []string{"vmdk"}},
		{"vmdk of ESX", with(0, "COWD"), []string{"vmdk"}},
		{"vdi", qemuImage(t, "vdi"), []string{"vdi"}},
		{"iso", with(0x8000, "\x01CD001\x01"), []string{"iso"}},
		{"udf", with(0x8000, "\x00NSR02\x01"), []string{"iso"}},
		{"gpt", gptImage(t), []string{"gpt"}},
		{"luks", luks, []string{"luks"}},
		{"qcow2 and iso", append(qemuImage(t, "qcow2")[:0x8000:0x8000], "\x01CD001\x01"...), []string{"qcow2", "iso"}},
	} {
		if diff := cmp.Diff(c.want, detect(c.head)); diff != "" {
			t.Errorf("%s: formats in format.go that detect the image (-want +got):\n%s", c.name, diff)
		}
		tested = append(tested, c.want...)
	}
	for _, f := range formats() {
		if !slices.Contains(tested, f.name) && !f.compressed && f.name != formatRaw {
			t.Errorf("the table of TestDetect in format_test.go has no image of the format %s", f.name)
		}
	}
	var opens []any
	for _, f := range formats() {
		if f.open != nil {
			opens = append(opens, f.open)
		}
	}
	testenv.CheckListed(t, ".", "func(context.Context, *attempt) (content, error)",
		"formats in storage/image/format.go", opens...)
}

// Parity: K7, K8
func TestInspect(t *testing.T) {
	gpt, qcow := gptImage(t), qemuImage(t, "qcow2")
	change := func(b []byte, f func(b []byte)) []byte {
		b = bytes.Clone(b)
		f(b)
		return b
	}
	usual := []string{"raw", "gpt", "qcow2"}
	vmdk := qemuImage(t, "vmdk")
	for _, c := range []struct {
		name     string
		declared string
		head     []byte
		options  Options
		want     string
		fails    string
	}{
		{
			name: "qcow2 as declared", declared: "qcow2", head: qcow, options: Options{PermittedFormats: usual},
			want: "qcow2",
		},
		{name: "qcow2, not declared", head: qcow, want: "qcow2"},
		{name: "qcow2, unknown", declared: "unknown", head: qcow, want: "qcow2"},
		{
			name: "raw, not declared", head: imagetest.RandomBytes(1, 5000),
			options: Options{PermittedFormats: usual}, want: "raw",
		},
		{name: "gpt, not declared", head: gpt, options: Options{PermittedFormats: usual}, want: "gpt"},
		{
			name: "iso where permitted", declared: "iso", head: with(0x8001, "CD001"),
			options: Options{PermittedFormats: []string{"iso"}}, want: "iso",
		},
		{
			name: "iso where not permitted", declared: "iso", head: with(0x8001, "CD001"),
			options: Options{PermittedFormats: usual}, fails: "Security: image format iso is not permitted",
		},
		{
			name: "qcow2 where not permitted", head: qcow, options: Options{PermittedFormats: []string{"raw"}},
			fails: "Security: image format qcow2 is not permitted",
		},
		{
			name: "declared as qcow2, but raw", declared: "qcow2", head: imagetest.RandomBytes(1, 5000),
			options: Options{PermittedFormats: usual},
			fails:   "Security: the image was declared as qcow2, but its content is raw",
		},
		{
			name: "declared as vmdk, but qcow2", declared: "vmdk", head: qcow,
			fails: "Security: the image was declared as vmdk, but its content is qcow2",
		},
		{
			name: "two formats", declared: "qcow2", head: append(bytes.Clone(qcow[:0x8000]), "\x01CD001"...),
			fails: "Security: the image can be taken for more than one format (qcow2, iso)",
		},
		{
			name: "gpt and iso", head: change(gpt, func(b []byte) { copy(b[0x8001:], "CD001") }),
			fails: "Security: the image can be taken for more than one format (iso, gpt)",
		},
		{name: "qed", head: qemuImage(t, "qed"), fails: "Security: images of format qed are never allowed"},
		{
			name: "vhd", head: qemuImage(t, "vpc"), options: Options{PermittedFormats: usual},
			fails: "Security: image format vhd is not permitted (permitted: raw, gpt, qcow2); images of format vhd " +
				"cannot be written to a disk, only raw, gpt, iso and qcow2: convert it by " +
				"`qemu-img convert -f vpc -O qcow2`",
		},
		{
			name: "vmdk", head: vmdk, options: Options{PermittedFormats: []string{"vmdk"}},
			fails: "images of format vmdk cannot be written to a disk, only raw, gpt, iso and qcow2: convert it by " +
				"`qemu-img convert -f vmdk -O qcow2`",
		},
		{
			name: "luks 1", head: with(0, "LUKS\xba\xbe\x00\x01"),
			fails: "images of format luks are encrypted as a whole",
		},
		{
			name: "luks where not permitted", head: with(0, "LUKS\xba\xbe\x00\x01"),
			options: Options{PermittedFormats: usual},
			fails: "Security: image format luks is not permitted (permitted: raw, gpt, qcow2); " +
				"images of format luks are encrypted as a whole",
		},
		{name: "vmdk of ESX", head: with(0, "COWD"), fails: "images of format vmdk cannot be written to a disk"},
		{
			name: "vmdk with a path", head: bytes.Replace(vmdk, []byte(`SPARSE "`), []byte(`SPARSE "/`), 1),
			fails: "Security: vmdk image: an extent is a path",
		},
		{
			name: "vmdk descriptor", head: qemuImage(t, "vmdk", "-o", "subformat=monolithicFlat"),
			fails: "Security: vmdk image: it consists of a descriptor",
		},
		{
			name:  "vmdk of another kind",
			head:  bytes.Replace(vmdk, []byte("monolithicSparse"), []byte("twoGbMaxExtent__"), 1),
			fails: "Security: vmdk image: it is neither",
		},
		{
			name:  "vmdk with a footer",
			head:  change(vmdk, func(b []byte) { binary.LittleEndian.PutUint64(b[56:], 1<<64-1) }),
			fails: "images of format vmdk cannot be written",
		},
		{name: "luks 2", head: with(0, "LUKS\xba\xbe\x00\x02"), fails: "Security: luks image"},
		{
			name: "gpt with an extra entry", head: change(gpt, func(b []byte) { b[446+16+4] = 0x83 }),
			fails: "Security: partition table of the image: there are more entries",
		},
		{
			name:  "gpt with the protective entry second",
			head:  change(gpt, func(b []byte) { copy(b[462:478], b[446:462]); b[450] = 0x83 }),
			fails: "Security: partition table of the image: the protective entry is entry 2",
		},
		{
			name: "gpt that begins elsewhere", head: change(gpt, func(b []byte) { b[446+8] = 2 }),
			fails: "Security: partition table of the image: the protective entry begins at block 2, want 1",
		},
		{ // fdisk before util-linux 2.31
			name: "gpt with the CHS address of block 0", want: "gpt",
			head: change(gpt, func(b []byte) { copy(b[446:], "\x00\x00\x01\x00\xee\xfe\xff\xff") }),
		},
		{ // Disk Utility of macOS
			name: "gpt without a CHS address", want: "gpt",
			head: change(gpt, func(b []byte) { copy(b[446:], "\x00\xfe\xff\xff\xee\xfe\xff\xff") }),
		},
		{name: "boot flag", head: change(gpt, func(b []byte) { b[446] = 1 }), fails: "boot flag that is neither"},
		{
			name: "no partition", head: with(510, "\x55\xaa"),
			fails: "Security: partition table of the image: it has no partition",
		},
		{
			name: "nothing is permitted, qcow2", declared: "qcow2", head: qcow,
			options: Options{PermittedFormats: []string{}}, fails: "Security: image format qcow2 is not permitted",
		},
		{
			name: "nothing is permitted, raw", declared: "raw", head: imagetest.RandomBytes(1, 5000),
			options: Options{PermittedFormats: []string{}}, fails: "Security: image format raw is not permitted",
		},
		{
			name: "inspection off, declared", declared: "qcow2", head: qcow,
			options: Options{SkipFormatInspection: true, PermittedFormats: []string{"raw"}}, want: "qcow2",
		},
		{name: "inspection off, not declared", head: qcow, options: Options{SkipFormatInspection: true}, want: "qcow2"},
		{
			name: "inspection off, not writable", declared: "vhd", head: qcow,
			options: Options{SkipFormatInspection: true}, fails: "images of format vhd cannot be written",
		},
	} {
		got, err := c.options.inspect(c.declared, c.head, nil)
		if c.fails != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.fails) && !strings.Contains(err.Error(), c.fails) ||
				!imagetest.IsA[*FormatError](err) {
				t.Errorf("%s: got %q and error %v, want %q", c.name, got, err, c.fails)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: got %q and error %v, want %q", c.name, got, err, c.want)
		}
	}
}

// An image without a declared format is streamed if it is raw, gpt or iso.
func TestWriteUndeclared(t *testing.T) {
	gpt := append(gptImage(t), imagetest.RandomBytes(11, 5*mib+100)...)
	iso := append(with(0x8001, "CD001"), imagetest.RandomBytes(12, 3*mib)...)
	raw := imagetest.RandomBytes(13, 6*mib)
	for name, data := range map[string][]byte{"gpt": gpt, "iso": iso, "raw": raw} {
		for _, server := range []*imagetest.Server{
			imagetest.Serve(t, imagetest.Content(data)), imagetest.Serve(t, imagetest.WithoutRanges(data)),
		} {
			disk := imagetest.UsedDisk(t, 16*mib)
			src := rawSource(data, server.URL)
			src.Format = "unknown"
			report, err := Write(t.Context(), disk, src, Options{})
			if err != nil || report.Format != name {
				t.Fatalf("%s: got report %+v and error %v", name, report, err)
			}
			if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
				t.Errorf("%s: the disk does not hold the image", name)
			}
		}
	}
}

// A server that sends a harmless beginning to the probe and another file afterwards is refused.
func TestServerWithTwoFaces(t *testing.T) {
	qcow := append(qemuImage(t, "qcow2"), make([]byte, mib)...)
	disk := imagetest.UsedDisk(t, 16*mib)
	src := rawSource(qcow,
		imagetest.Serve(t, imagetest.Content(imagetest.RandomBytes(14, 2*mib)), imagetest.Content(qcow)).URL)
	src.Format = ""
	_, err := Write(t.Context(), disk, src, Options{})
	if !imagetest.IsA[*FormatError](err) || !strings.HasPrefix(err.Error(), "Security: ") {
		t.Errorf("got error %v, want a refusal", err)
	}
	imagetest.MustNotBoot(t, disk)
}

// No image of a declared format that cannot be written changes the disk, even if no server responds.
func TestUnwritableFormatDeclared(t *testing.T) {
	for _, declared := range []string{"vmdk", "VHD", "vdi", "ami"} {
		disk := imagetest.UsedDisk(t, 4*mib)
		src := Source{
			URLs: urls(imagetest.Serve(t, imagetest.Status(503)).URL), Format: declared, Checksum: sha256Of(nil),
		}
		_, err := Write(t.Context(), disk, src, Options{})
		want := "images of format " + strings.ToLower(declared) + " cannot be written"
		if !imagetest.IsA[*FormatError](err) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("declared %s: got error %v, want %q", declared, err, want)
		}
		imagetest.MustBeUntouched(t, disk)
	}
}

func FuzzInspect(f *testing.F) {
	for _, d := range []string{
		"QFI\xfb\x00\x00\x00\x03", "KDMV", "COWD", "LUKS\xba\xbe", "conectix", "vhdxfile", "QED\x00",
	} {
		f.Add([]byte(d), []byte(nil), "")
	}
	f.Add(with(510, "\x55\xaa")[:512], make([]byte, endSize), "gpt")
	f.Add(with(0x8001, "CD001")[:0x8010], with(endSize-vhdFooterSize, vhdCookie)[:endSize], "iso")
	f.Add([]byte("# Disk DescriptorFile\ncreateType=\"vmfs\"\nRW 1 VMFS \"x\"\n"), []byte(nil), "vmdk")
	for _, c := range foreign {
		file := convert(f, "raw", make([]byte, foreignSize), c.driver, c.options)
		f.Add(file[:min(len(file), 4<<10)], lastBytes(file), c.format)
	}
	stream := withVMDKFooter(f, make([]byte, foreignSize))
	f.Add(stream[:4<<10], lastBytes(stream), "vmdk")
	f.Fuzz(func(t *testing.T, head, end []byte, declared string) {
		found := detect(head)
		format, err := Options{}.inspect(declared, head, end)
		if err != nil {
			if refusal := new(FormatError); !errors.As(err, &refusal) || refusal.Reason == "" {
				t.Errorf("got error %v (%T), want a refusal with a reason", err, err)
			}
			return
		}
		if slices.Contains([]string{"vhd", "vhdx", "vmdk", "vdi", "qed", "luks"}, format) {
			t.Errorf("got format %q, want a refusal", format)
		}
		if i := bytes.LastIndex(end, []byte(vhdCookie)); i >= 0 && findFormat(format).copied &&
			(len(end)-i == vhdFooterSize || len(end)-i == vhdFooterSize-1) {
			t.Errorf("got format %q of an image that ends with the footer of a VHD", format)
		}
		if len(found) > 1 || len(found) == 1 && found[0] != format || len(found) == 0 && format != formatRaw {
			t.Errorf("got format %q, detected %q", format, found)
		}
		if !slices.Contains([]string{formatRaw, formatGPT, "iso", formatQcow2}, format) {
			t.Errorf("got format %q, which cannot be written", format)
		}
	})
}

// An empty list permits nothing, whatever format is declared, and no request is sent.
func TestEmptyListPermitsNothing(t *testing.T) {
	data := imagetest.RandomBytes(5, mib)
	for _, declared := range []string{"raw", "gpt", "qcow2", "unknown", ""} {
		for _, skip := range []bool{false, true} {
			server := imagetest.Serve(t, imagetest.Content(data))
			disk := imagetest.UsedDisk(t, 4*mib)
			src := rawSource(data, server.URL)
			src.Format = declared
			o := Options{PermittedFormats: []string{}, SkipFormatInspection: skip}
			if _, err := Write(t.Context(), disk, src, o); !imagetest.IsA[*FormatError](err) ||
				!strings.HasPrefix(err.Error(), "Security: ") {
				t.Errorf("declared %q: got error %v, want a refusal", declared, err)
			}
			if err := Check(t.Context(), "disk", 4*mib, src, o); !imagetest.IsA[*FormatError](err) {
				t.Errorf("check of declared %q: got error %v, want a refusal", declared, err)
			}
			imagetest.MustBeUntouched(t, disk)
			if n := server.Requests.Load(); n != 0 {
				t.Errorf("declared %q: got %d requests, want none", declared, n)
			}
		}
	}
}

// The content of a compressed file is copied as raw, so raw must be permitted, even if formats are not inspected.
func TestPackedNeedsRaw(t *testing.T) {
	gpt := gptImage(t)
	for _, head := range [][]byte{imagetest.RandomBytes(6, 3*mib), gpt} {
		file := imagetest.Pack(t, head, "gzip -1 -c")
		for _, tt := range []struct {
			permitted []string
			skip      bool
			good      bool
		}{
			{permitted: []string{"raw", "gpt", "qcow2"}, good: true},
			{permitted: []string{"qcow2", "gpt"}},
			{permitted: []string{"gzip", "qcow2", "gpt"}},
			{permitted: []string{"qcow2", "gpt"}, skip: true},
			{permitted: []string{"raw"}, skip: true, good: true},
		} {
			disk := imagetest.UsedDisk(t, 16*mib)
			o := Options{PermittedFormats: tt.permitted, SkipFormatInspection: tt.skip}
			_, err := Write(t.Context(), disk, packedSource(file, imagetest.Serve(t, imagetest.Content(file)).URL), o)
			if tt.good != (err == nil) || !tt.good && (!imagetest.IsA[*FormatError](err) ||
				!strings.Contains(err.Error(), "image format raw is not permitted")) {
				t.Errorf("permitted %v, inspection off %v: got error %v, want success: %v",
					tt.permitted, tt.skip, err, tt.good)
			}
			if !tt.good {
				imagetest.MustBeUntouched(t, disk)
			}
		}
	}
}
