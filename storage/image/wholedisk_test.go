package image

import (
	"bytes"
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

// madeBy returns the first MiB of what a program makes of the file that is its last argument.
func madeBy(t *testing.T, size int64, command ...string) []byte {
	t.Helper()
	testenv.Programs(t, command[0])
	disk := testenv.SparseFile(t, size)
	testenv.Run(t, command[0], append(command[1:], disk)...)
	return testenv.Content(t, disk)[:device.HeadSize]
}

// packed returns the file "out" that a program makes of the file "disk.raw".
func packed(t *testing.T, program, arguments string) []byte {
	t.Helper()
	testenv.Programs(t, program)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "disk.raw"), imagetest.DiskContent(60, mib, 10<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "sh", "-c", "cd "+dir+" && "+program+" "+arguments)
	return testenv.Content(t, filepath.Join(dir, "out"))
}

// Files that cannot be disks are refused, and the error says what they are. All beginnings of disks are accepted.
//
// Parity: K14
func TestCheckDisk(t *testing.T) {
	gpt, iso := gptImage(t), packed(t, "genisoimage", "-quiet -o out disk.raw")
	hybrid := bytes.Clone(iso)
	copy(hybrid, gpt[:512])
	mbr := bytes.Clone(gpt[:mib])
	clear(mbr[512:])
	mbr[450] = 0x83
	code := make([]byte, mib)
	copy(code[510:], "\x55\xaa")
	large := make([]byte, mib)
	copy(large, gpt[:512])
	copy(large[4096:], gpt[512:1024])
	both := bytes.Clone(gpt)
	copy(both[4096:], gpt[512:1024])
	broken := bytes.Clone(gpt)
	clear(broken[512:])
	shifted := bytes.Clone(gpt)
	shifted[446+8] = 2
	protectedTwice := bytes.Clone(shifted)
	copy(protectedTwice[446+32:446+48], gpt[446:446+16])
	overTable := bytes.Clone(code) // boot code that reaches to the signature
	copy(overTable[446:], "\x12\x34\x56\x78\xee\x9a\xbc\xde\x02\x00\x00\x00\x90\x90\x90\x90")
	for name, c := range map[string]struct {
		head   []byte
		sector int64
		want   string
	}{
		"tar":       {packed(t, "tar", "-cf out disk.raw"), 512, "is a tar archive"},
		"zip":       {packed(t, "python3", "-m zipfile -c out disk.raw"), 512, "is a zip archive"},
		"cpio":      {packed(t, "cpio", "--quiet -o -H newc -O out <<END\ndisk.raw\nEND"), 512, "is a cpio archive"},
		"squashfs":  {packed(t, "mksquashfs", "disk.raw out -quiet -no-progress"), 512, "is a squashfs file system"},
		"ext4":      {madeBy(t, 8*mib, "mkfs.ext4", "-q"), 512, "is an ext2, ext3 or ext4 file system"},
		"xfs":       {madeBy(t, 320*mib, "mkfs.xfs", "-q"), 512, "is an XFS file system"},
		"btrfs":     {madeBy(t, 128*mib, "mkfs.btrfs", "-q"), 512, "is a btrfs file system"},
		"swap":      {madeBy(t, 8*mib, "mkswap", "-q"), 512, "is swap space"},
		"iso":       {iso, 512, "is an ISO 9660 file system"},
		"gzip":      {imagetest.Pack(t, gpt, "gzip -c"), 512, "is a file of format gzip, which was declared as raw"},
		"qcow2":     {qemuImage(t, "qcow2"), 512, "is a file of format qcow2, which was declared as raw"},
		"7z":        {with(0, "7z\xbc\xaf\x27\x1c"), 512, "is a 7z archive"},
		"rpm":       {with(0, "\xed\xab\xee\xdb"), 512, "is an RPM package"},
		"page":      {with(0, "<!DOCTYPE html>"), 512, "is an HTML document"},
		"zeros":     {make([]byte, mib), 512, "begins with 1048576 zeros"},
		"random":    {imagetest.RandomBytes(61, mib), 512, "is of no known format"},
		"beginning": {with(0, "7z\xbc\xaf\x27\x1c")[:512], 512, "is a 7z archive"},

		"gpt for 512 on 4096":      {gpt, 4096, "its GPT is for sectors of 512 bytes, those of the disk have 4096"},
		"gpt for 4096 on 512":      {large, 512, "its GPT is for sectors of 4096 bytes, those of the disk have 512"},
		"gpt protected elsewhere":  {shifted, 512, "the protective entry of its MBR starts at sector 2, want 1"},
		"gpt protected twice":      {protectedTwice, 512, ""},
		"gpt":                      {gpt, 512, ""},
		"gpt for 4096":             {large, 4096, ""},
		"gpt for both":             {both, 4096, ""},
		"gpt without its header":   {broken, 512, ""},
		"boot code over the table": {overTable, 512, ""},
		"mbr":                      {mbr, 512, ""},
		"mbr on 4096":              {mbr, 4096, ""},
		"hybrid iso":               {hybrid, 512, ""},
		"boot code":                {code, 512, ""},
		"FAT":                      {fatImage(t), 512, ""},
		"not yet a sector":         {make([]byte, 511), 512, ""},
		"gpt of which too few are": {large[:512], 4096, ""},
		"image of a partition":     {make([]byte, mib), 0, ""},
	} {
		err := checkDisk("http://host/image", c.head, c.sector)
		if c.want == "" && err != nil || c.want != "" && (!imagetest.IsA[*NoDiskError](err) ||
			!strings.Contains(err.Error(), "image http://host/image cannot be written to a whole disk: ") ||
			!strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

// An image that is not a disk image does not change the disk, whether or not its format is declared.
//
// Parity: K14
func TestNoDisk(t *testing.T) {
	tar := packed(t, "tar", "-cf out disk.raw")
	for name, c := range map[string]struct {
		file   []byte
		format string
	}{
		"raw":        {tar, "raw"},
		"undeclared": {tar, ""},
		"gzip":       {imagetest.Pack(t, tar, "gzip -c"), ""},
		"zstd":       {imagetest.Pack(t, tar, "zstd -q -c"), ""},
	} {
		for way, handler := range map[string]http.HandlerFunc{
			"ranges": imagetest.Content(c.file), "no ranges": imagetest.WithoutRanges(c.file),
		} {
			server := imagetest.Serve(t, handler)
			src := Source{URLs: urls(server.URL), Format: c.format, Checksum: sha256Of(c.file)}
			disk := imagetest.UsedDisk(t, 4*mib)
			_, err := Write(t.Context(), disk, src, Options{DiskSectorSize: 512})
			if !imagetest.IsA[*NoDiskError](err) || !strings.Contains(err.Error(), "tar archive") ||
				!strings.Contains(err.Error(), server.URL) {
				t.Errorf("%s, %s: got error %v, want one that names a tar archive", name, way, err)
			}
			imagetest.MustBeUntouched(t, disk)
			if _, err := Write(t.Context(), disk, src, Options{}); err != nil {
				t.Errorf("%s, %s, to a partition: %v", name, way, err)
			}
		}
	}
	// A server that fails at first sends the image when the disk was wiped.
	server := imagetest.Serve(t, imagetest.Status(503), imagetest.Content(tar))
	disk, src := imagetest.UsedDisk(t, 4*mib), rawSource(tar, server.URL)
	src.Fetch.Retries = 1
	_, err := Write(t.Context(), disk, src, Options{DiskSectorSize: 512})
	if !imagetest.IsA[*NoDiskError](err) {
		t.Errorf("after a failure: got error %v, want one about the disk", err)
	}
	imagetest.MustNotBoot(t, disk)
}

// A server whose response is no disk does not keep the image of the next one from being written.
func TestNoDiskFromOneOfTwoServers(t *testing.T) {
	data := append(gptImage(t), imagetest.RandomBytes(62, mib)...)
	page := append([]byte("<html>maintenance</html>"), make([]byte, 1<<10)...)
	for _, format := range []string{"raw", ""} {
		wrong, right := imagetest.Serve(t, imagetest.Content(page)), imagetest.Serve(t, imagetest.Content(data))
		src := Source{
			URLs: urls(wrong.URL, right.URL), Format: format, Checksum: sha256Of(data),
			Fetch: fetch.Options{Retries: 1},
		}
		disk := imagetest.UsedDisk(t, 4*mib)
		report, err := Write(t.Context(), disk, src, Options{DiskSectorSize: 512})
		if err != nil || report.URL != right.URL {
			t.Errorf("format %q: got %q, %v, want the image of %s", format, report.URL, err, right.URL)
		}
		src.URLs = urls(wrong.URL, wrong.URL+"/again")
		if _, err := Write(t.Context(), disk, src, Options{DiskSectorSize: 512}); !imagetest.IsA[*NoDiskError](err) ||
			!strings.Contains(err.Error(), "HTML") {
			t.Errorf("format %q, two pages: got %v, want an error that names HTML", format, err)
		}
		imagetest.MustNotBoot(t, disk)
	}
}

// Without retries, the check of a raw image is the only attempt. One that fails does not change the disk.
func TestRawDiskWithoutRetries(t *testing.T) {
	data := append(gptImage(t), imagetest.RandomBytes(62, mib)...)
	server := imagetest.Serve(t, imagetest.Status(http.StatusServiceUnavailable), imagetest.Content(data))
	disk := imagetest.UsedDisk(t, 4*mib)
	_, err := Write(t.Context(), disk, rawSource(data, server.URL), Options{DiskSectorSize: 512})
	if !imagetest.IsA[*fetch.DownloadError](err) || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v, want the error of the server", err)
	}
	imagetest.MustBeUntouched(t, disk)
}

// The check of a raw image costs no request.
func TestRawDiskIsRequestedOnce(t *testing.T) {
	data := append(gptImage(t), imagetest.RandomBytes(62, mib)...)
	server := imagetest.Serve(t, imagetest.Content(data), imagetest.Status(http.StatusNotFound))
	disk := imagetest.UsedDisk(t, 4*mib)
	if _, err := Write(t.Context(), disk, rawSource(data, server.URL), Options{DiskSectorSize: 512}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(imagetest.ReadAt(t, disk, 0, len(data)), data) {
		t.Error("the disk does not hold the image")
	}
}
