package imaging

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

const (
	mib       = 1 << 20
	imageSize = 24 * mib
	diskSize  = 4 * gib // the smallest that is chosen without hints
)

// osImage makes a raw image with a GPT of one partition full of noise, and a disk id in its protective MBR.
func osImage(t *testing.T) string {
	t.Helper()
	path := testenv.SparseFile(t, imageSize)
	testenv.GPT(t, path, "start=2048, size=16MiB, name=root")
	noise := make([]byte, 16*mib)
	source := rand.NewChaCha8([32]byte{1})
	if _, err := source.Read(noise); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // closed after the last read or at the end of a test
	for offset, data := range map[int64][]byte{mib: noise, 440: {0x4d, 0x3c, 0x2b, 0x1a}} {
		if _, err := f.WriteAt(data, offset); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// server serves one file and counts the requests.
type server struct {
	*httptest.Server
	downloads atomic.Int64
}

func serve(t *testing.T, path string) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Range") == "" {
			s.downloads.Add(1)
		}
		if strings.HasSuffix(r.URL.Path, ".missing") {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, path)
	}))
	t.Cleanup(s.Close)
	return s
}

func sumOf(t *testing.T, path string, offset, length int64) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // closed after the last read or at the end of a test
	h := sha256.New()
	if n, err := io.Copy(h, io.NewSectionReader(f, offset, length)); err != nil || n != length {
		t.Fatalf("read %s: got %d bytes and %v, want %d", path, n, err, length)
	}
	return hex.EncodeToString(h.Sum(nil))
}

var fingerprintSeed = maphash.MakeSeed()

// fingerprint returns a hash of a file or block device that is valid in this process. It is faster than sumOf.
func fingerprint(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	var h maphash.Hash
	h.SetSeed(fingerprintSeed)
	buf := make([]byte, mib)
	for {
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n]) // never fails
		if err == io.EOF {
			return h.Sum64()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// loopDisk returns a disk of the minimum size for a root disk, and an Imager on a machine with only this disk.
func loopDisk(t *testing.T) (string, *Imager) {
	t.Helper()
	return sectorDisk(t, 512, false)
}

// sectorDisk makes a disk with sectors of the given size in bytes.
func sectorDisk(t *testing.T, sector int, rebuild bool) (string, *Imager) {
	t.Helper()
	path := testenv.Loop(t, testenv.SparseFile(t, diskSize), sector)
	i := New(Options{
		Config: config.NewLive(&config.Config{
			PermittedImageFormats: []string{"raw", "gpt", "qcow2"}, ImageDownloadConnectionTimeout: 10 * time.Second,
			ConfigDriveRebuild: rebuild,
		}),
		Node: &node.Cache{},
		Disks: disktest.Lister(func(context.Context) ([]block.Device, error) {
			return []block.Device{{
				Name: filepath.Base(path), Path: path, Type: "disk", Size: diskSize, LogicalSector: int64(sector),
			}}, nil
		}),
	})
	return path, i
}

func rawImage(t *testing.T, url, path string) ImageInfo {
	t.Helper()
	return ImageInfo{
		ID: "inst.raw", Source: source(url+"/inst.raw", "raw", sha256Digest(sumOf(t, path, 0, imageSize))),
		StreamRaw: true,
	}
}

const metaData = `{"uuid": "b77a8c26"}`

// configDrive makes a small file system with a label and a file, and its base64 gzip text.
func configDrive(t *testing.T) (text string, drive []byte) {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat", "mmd", "mcopy", "mtype")
	path, file := testenv.SparseFile(t, mib), filepath.Join(t.TempDir(), "meta_data.json")
	if err := os.WriteFile(file, []byte(metaData), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.vfat", "-n", "CONFIG-2", path)
	testenv.Run(t, "mmd", "-i", path, "::openstack", "::openstack/latest")
	testenv.Run(t, "mcopy", "-i", path, file, "::openstack/latest/meta_data.json")
	drive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return encodeDrive(t, drive), drive
}

// encodeDrive returns a config drive as Ironic sends it.
func encodeDrive(t *testing.T, drive []byte) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(drive); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

func TestPrepareWritesTheConfigDrive(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	path := osImage(t)
	text, drive := configDrive(t)
	drives := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/raw":
			_, _ = w.Write(drive)
		case "/base64":
			_, _ = w.Write([]byte(text))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(drives.Close)
	for _, tt := range []struct {
		name, argument, inImage string
		fails                   bool
	}{
		{"base64 as an argument", text, "", false},
		{"base64 in the image's description", "", text, false},
		{"the argument counts first", text, "no base64", false},
		{"URL of the image itself", drives.URL + "/raw", "", false},
		{"URL of base64", strings.Replace(drives.URL, "http", "HTTP", 1) + "/base64", "", false},
		{"URL of nothing", drives.URL + "/missing?secret", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, i := loopDisk(t)
			info := rawImage(t, serve(t, path).URL, path)
			info.ConfigDrive = tt.inImage
			_, err := i.Prepare(t.Context(), info, tt.argument)
			if tt.fails {
				if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "404") ||
					strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want a DeploymentError with the status and without the query", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			table, err := partition.Read(t.Context(), disk)
			if err != nil {
				t.Fatal(err)
			}
			start := table.Partitions[len(table.Partitions)-1].Start
			got := testenv.Run(t, "mtype", "-i", fmt.Sprintf("%s@@%d", disk, start),
				"::openstack/latest/meta_data.json")
			if !strings.HasSuffix(got, metaData) { // mtype grumbles about loop devices first
				t.Errorf("meta_data.json: got %q, want %q", got, metaData)
			}
		})
	}
}

// Disk in, prepare_image, disk out: the partition has the image's bytes, the backup GPT is at the end of the larger
// disk, the config drive is the last partition, and the result is the protocol's text.
func TestPrepareWritesTheDisk(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "mkfs.vfat")
	disk, i := loopDisk(t)
	if got := i.PartitionUUIDs(); len(got) != 0 {
		t.Errorf("partition uuids before: got %v, want none", got)
	}
	path := osImage(t)
	drive, driveBytes := configDrive(t)
	var log strings.Builder
	i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := serve(t, path)
	got, err := i.Prepare(t.Context(), rawImage(t, s.URL, path), drive)
	if err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Contains(text, "level=WARN") || !strings.Contains(text, "backup GPT moved") {
		t.Errorf("got the log\n%s\nwant no warnings, and that the GPT was moved", text)
	}
	if want := "image (inst.raw) written to device " + disk + " root_uuid=0x1a2b3c4d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if diff := cmp.Diff(map[string]any{"root uuid": "0x1a2b3c4d"}, i.PartitionUUIDs()); diff != "" {
		t.Errorf("partition uuids differ (-want +got):\n%s", diff)
	}
	if got, want := sumOf(t, disk, mib, 16*mib), sumOf(t, path, mib, 16*mib); got != want {
		t.Errorf("partition 1: got SHA-256 %s, want %s", got, want)
	}
	if out := testenv.Run(t, "sgdisk", "-v", disk); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk finds problems:\n%s", out)
	}
	table, err := partition.Read(t.Context(), disk)
	if err != nil || len(table.Partitions) != 2 {
		t.Fatalf("got table %+v and %v, want two partitions", table, err)
	}
	last := table.Partitions[1]
	if want := int64(diskSize - 64*mib - mib); last.Start < want {
		t.Errorf("config drive starts at %d, want the last 64 MiB of the disk", last.Start)
	}
	sum := sha256.Sum256(driveBytes)
	if got, want := sumOf(t, disk, last.Start, int64(len(driveBytes))), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("config drive: got SHA-256 %s, want %s", got, want)
	}
}

// Prepare closes its connections to the servers of image and config drive.
func TestPrepareClosesConnections(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	path := osImage(t)
	_, drive := configDrive(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/drive" {
			_, _ = w.Write(drive)
			return
		}
		http.ServeFile(w, r, path)
	}))
	connections := imagetest.CountConnections(s)
	s.Start()
	t.Cleanup(s.Close)
	_, i := loopDisk(t)
	if _, err := i.Prepare(t.Context(), rawImage(t, s.URL, path), s.URL+"/drive"); err != nil {
		t.Fatal(err)
	}
	connections.AwaitClosed(t, "image and config drive")
}

// The checksum comes from the field checksum or from a file, whose URL is logged. Without a checksum nothing is
// written.
func TestPrepareChecksums(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	path := osImage(t)
	digits := sumOf(t, path, 0, imageSize)
	sums := filepath.Join(t.TempDir(), "sums")
	if err := os.WriteFile(sums, []byte(digits+"  inst.raw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	images, files := serve(t, path), serve(t, sums)
	for _, tt := range []struct {
		name   string
		change func(*ImageInfo)
		want   string // the fault
		file   bool   // the log names the file
	}{
		{"checksum", func(i *ImageInfo) { i.Source.Digest = selectDigest(digits, "", "") }, "<nil>", false},
		{
			"wrong checksum",
			func(i *ImageInfo) { i.Source.Digest = selectDigest(strings.Repeat("0", 64), "", "") },
			"ImageChecksumError", false,
		},
		{
			"checksum beside an unknown algorithm",
			func(i *ImageInfo) { i.Source.Digest = selectDigest(digits, "crc32", "1") }, "<nil>", false,
		},
		{"file", func(i *ImageInfo) { i.Source.Digest = sha256Digest(files.URL + "/sums") }, "<nil>", true},
		{
			"no such file", func(i *ImageInfo) { i.Source.Digest = sha256Digest(files.URL + "/sums.missing") },
			"ImageDownloadFatalError", false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, i := loopDisk(t)
			var log strings.Builder
			i.o.Log = slog.New(slog.NewTextHandler(&log, nil))
			info := rawImage(t, images.URL, path)
			tt.change(&info)
			if _, err := i.Prepare(t.Context(), info, ""); typeOf(err) != tt.want {
				t.Errorf("got %s (%v), want %s", typeOf(err), err, tt.want)
			}
			written := sumOf(t, disk, mib, 16*mib) == sumOf(t, path, mib, 16*mib)
			if tt.want == "<nil>" && !written || tt.want == "ImageDownloadFatalError" && written {
				t.Errorf("got the image on the disk: %v", written)
			}
			named := strings.Contains(log.String(), files.URL+"/sums")
			if named != tt.file || strings.Contains(log.String(), "checksum found") != tt.file {
				t.Errorf("got the log\n%s\nwant the file in it: %v", log.String(), tt.file)
			}
		})
	}
}

// After a failed write, the UUIDs of the previous image are no longer returned.
func TestPrepareForgets(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	whole, root := osImage(t), rootImage(t, rootUUID)
	fails := func(t *testing.T, i *Imager, info ImageInfo) {
		t.Helper()
		info.StreamRaw = false
		if _, err := i.Prepare(t.Context(), info, ""); err != nil {
			t.Fatal(err)
		}
		if len(i.PartitionUUIDs()) == 0 {
			t.Error("got no partition uuids of the first image")
		}
		info.ID, info.Source.Digest = "other", sha256Digest(strings.Repeat("0", 64))
		if _, err := i.Prepare(t.Context(), info, ""); typeOf(err) != "ImageChecksumError" {
			t.Errorf("got %v, want an ImageChecksumError", err)
		}
		if got := i.PartitionUUIDs(); len(got) != 0 {
			t.Errorf("partition uuids: got %v, want none", got)
		}
	}
	t.Run("whole disk", func(t *testing.T) {
		_, i := loopDisk(t)
		fails(t, i, rawImage(t, serve(t, whole).URL, whole))
	})
	t.Run("partition image", func(t *testing.T) {
		_, i := layoutDisk(t, 512, "boot_mode:bios")
		fails(t, i, partitionImage(t, root, serve(t, root).URL, "raw", small(func(p *PartitionInfo) { p.Swap = 0 })))
	})
}

// A config drive needs a partition, for which an MBR with four partitions has no space.
func TestConfigDriveWithoutPlace(t *testing.T) {
	testenv.Programs(t, "sfdisk")
	path := testenv.SparseFile(t, imageSize)
	testenv.Run(t, "sh", "-c",
		`printf 'label: dos\nstart=2048, size=2048\nstart=4096, size=2048\nstart=6144, size=2048\nstart=8192, `+
			`size=2048\n' |
		PATH=$PATH:/usr/sbin sfdisk -q "$0"`, path)
	text, _ := configDrive(t)
	disk, i := loopDisk(t)
	_, err := i.Prepare(t.Context(), rawImage(t, serve(t, path).URL, path), text)
	if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), "write config drive to "+disk) {
		t.Errorf("got %s (%v), want a DeploymentError that says what was not written", typeOf(err), err)
	}
	if got := i.PartitionUUIDs(); len(got) != 0 {
		t.Errorf("partition uuids: got %v, want none", got)
	}
}

// The partitions of a multipath map hold it open. If they cannot be dropped, nothing is written.
func TestPrepareReleasesTheDisk(t *testing.T) {
	testenv.Programs(t, "sgdisk")
	path := osImage(t)
	disk, i := loopDisk(t)
	i.o.System = sysfs.Root{Path: t.TempDir()}
	dir := i.o.System.Sys("class/block", filepath.Base(disk), "dm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "uuid"), []byte("mpath-a-map-of-this-file-alone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, path)
	_, err := i.Prepare(t.Context(), rawImage(t, s.URL, path), "")
	if typeOf(err) != "ImageWriteError" || !strings.Contains(err.Error(), disk) || s.downloads.Load() > 0 {
		t.Errorf("got %s (%v) after %d downloads, want an ImageWriteError after none",
			typeOf(err), err, s.downloads.Load())
	}
}

// The status shows the progress of the write, and no longer after its end, which has a result.
func TestPrepareShowsProgress(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	path := osImage(t)
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	disk, i := loopDisk(t)
	board := status.NewBoard("1", nil)
	board.Begin("deploy.execute_deploy_step", "write_image")
	i.o.Board = board
	shown := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(imageSize))
		if r.Method == http.MethodHead {
			return
		}
		_, _ = w.Write(image[:imageSize/2])
		w.(http.Flusher).Flush()
		<-shown
		_, _ = w.Write(image[imageSize/2:])
	}))
	t.Cleanup(s.Close)
	ended := make(chan error, 1)
	go func() {
		_, err := i.Prepare(t.Context(), rawImage(t, s.URL, path), "")
		ended <- err
	}()
	for timeout := time.After(time.Minute); ; {
		changed := board.Changed()
		if work := board.State().Work; len(work) == 1 && work[0].Done > 0 {
			if work[0].Device != disk || work[0].Total != imageSize {
				t.Errorf("got %+v, want %d bytes for %s", work[0], imageSize, disk)
			}
			if work[0].Unwritten < mib || work[0].Unwritten > work[0].Done {
				t.Errorf("got %d bytes that are not on the disk, want at least the first MiB", work[0].Unwritten)
			}
			break
		}
		select {
		case <-changed:
		case <-timeout:
			close(shown)
			t.Fatalf("got %+v on the board, want a share of the image", board.State().Work)
		}
	}
	close(shown)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if work := board.State().Work; len(work) > 0 {
		t.Errorf("got %+v on the board, want nothing", work)
	}
	board.End(nil)
	want := "write_image: done, image of 24.0 MiB written to " + disk + " in "
	if got := board.Summary(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "iB/s)") {
		t.Errorf("got the result %q, want %q with time and rate", got, want)
	}
	// Work after the write has no progress of the write.
	for range 100 {
		i.showProgress(t.Context(), disk, nil)("")
		if work := board.State().Work; len(work) > 0 {
			t.Fatalf("got %+v on the board, want nothing", work)
		}
	}
}

func TestPrepareSkipsWhatIsWritten(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	disk, i := loopDisk(t)
	raw := osImage(t)
	s := serve(t, raw)
	prepare := func(what string, info ImageInfo, downloads int64) {
		t.Helper()
		before := s.downloads.Load()
		if _, err := i.Prepare(t.Context(), info, ""); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := s.downloads.Load() - before; got != downloads {
			t.Errorf("%s: got %d downloads, want %d", what, got, downloads)
		}
	}
	info := rawImage(t, s.URL, raw)
	prepare("a raw stream", info, 1)
	prepare("a raw stream again", info, 1)
	info.StreamRaw = false
	prepare("not streamed", info, 1)
	prepare("not streamed, again", info, 0)
	info.ID = "other.raw"
	prepare("another id", info, 1)
	testenv.Run(t, "sgdisk", "-Z", disk)
	prepare("after an erase", info, 1)
}

// An image that begins with no boot sector is refused before the disk is changed.
//
// Parity: K14
func TestPrepareRefusesAnImageWithoutPartitions(t *testing.T) {
	disk, i := loopDisk(t)
	testenv.Run(t, "sgdisk", "-n", "1:0:0", disk)
	before := sumOf(t, disk, 0, imageSize)
	path := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(path, bytes.Repeat([]byte("junk"), imageSize/4), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := i.Prepare(t.Context(), rawImage(t, serve(t, path).URL, path), "")
	if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), disk) {
		t.Errorf("got %v, want a DeploymentError that names %s", err, disk)
	}
	if got := i.PartitionUUIDs(); len(got) != 0 {
		t.Errorf("partition uuids: got %v, want none", got)
	}
	if sumOf(t, disk, 0, imageSize) != before {
		t.Errorf("the beginning of %s was changed", disk)
	}
	empty := testenv.SparseFile(t, imageSize)
	testenv.Run(t, "sgdisk", "-o", empty)
	_, err = i.Prepare(t.Context(), rawImage(t, serve(t, empty).URL, empty), "")
	if typeOf(err) != "DeploymentError" || !strings.Contains(err.Error(), disk+" has no partition") {
		t.Errorf("empty table: got %v, want a DeploymentError that says so of %s", err, disk)
	}
}

// A failure is a fault of the protocol. It leaves a disk whose first MiB is zero, or for a partition image a disk
// whose root does not boot.
func TestPrepareFails(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	whole, root := osImage(t), rootImage(t, rootUUID)
	for _, tt := range []struct {
		name   string
		change func(*ImageInfo)
		want   string
	}{
		{
			"wrong checksum", func(i *ImageInfo) { i.Source.Digest = sha256Digest(strings.Repeat("0", 64)) },
			"ImageChecksumError",
		},
		{
			"nothing there", func(i *ImageInfo) { redirect(i, i.Source.URLs[0].Secret()+".missing") },
			"ImageDownloadFatalError",
		},
		{"nobody there", func(i *ImageInfo) { redirect(i, "http://127.0.0.1:1/inst.raw") }, "ImageDownloadError"},
		{"not the format it says", func(i *ImageInfo) { i.Source.Format = "qcow2" }, "InvalidImage"},
		{"broken config drive", func(i *ImageInfo) { i.ConfigDrive = "no base64" }, "DeploymentError"},
	} {
		fails := func(t *testing.T, i *Imager, info ImageInfo) {
			t.Helper()
			tt.change(&info)
			if _, err := i.Prepare(t.Context(), info, ""); typeOf(err) != tt.want {
				t.Errorf("got %s (%v), want %s", typeOf(err), err, tt.want)
			}
			if got := i.PartitionUUIDs(); len(got) != 0 {
				t.Errorf("partition uuids: got %v, want none", got)
			}
		}
		t.Run(tt.name, func(t *testing.T) {
			disk, i := loopDisk(t)
			fails(t, i, rawImage(t, serve(t, whole).URL, whole))
			zeros := sha256.Sum256(make([]byte, mib))
			if got, want := sumOf(t, disk, 0, mib), hex.EncodeToString(zeros[:]); got != want {
				t.Error("the disk has a first MiB, want zeros")
			}
		})
		t.Run(tt.name+", partition image", func(t *testing.T) {
			disk, i := layoutDisk(t, 512, "boot_mode:bios")
			fails(t, i,
				partitionImage(t, root, serve(t, root).URL, "raw", small(func(p *PartitionInfo) { p.Swap = 0 })))
			if kind := tag(t, block.PartitionPath(sysfs.Root{}, disk, 1), "TYPE"); kind != "" {
				t.Errorf("root holds a file system of type %s, want none", kind)
			}
		})
	}
}

// cache_image writes an image that is not on the disk, even if it is to be streamed, and any image by force. The text
// says which. A config drive is written in all cases.
//
// Parity: E16
func TestCache(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	disk, i := loopDisk(t)
	raw := osImage(t)
	s := serve(t, raw)
	info := rawImage(t, s.URL, raw)
	for n, tt := range []struct {
		drive, force bool
		downloads    int64
		text         string
	}{
		{false, false, 1, "cached to"},
		{false, false, 0, "already present on"},
		{true, false, 0, "already present on"},
		{true, false, 0, "already present on"},
		{true, true, 1, "cached to"},
	} {
		before := s.downloads.Load()
		drive, driveBytes := "", []byte(nil)
		if tt.drive {
			drive, driveBytes = configDrive(t) // another one each time
		}
		text, err := i.Cache(t.Context(), info, drive, tt.force)
		want := fmt.Sprintf("image (inst.raw) %s device %s root_uuid=0x1a2b3c4d", tt.text, disk)
		if err != nil || text != want {
			t.Errorf("call %d: got %q, %v, want %q", n+1, text, err, want)
		}
		if got := s.downloads.Load() - before; got != tt.downloads {
			t.Errorf("call %d: got %d downloads, want %d", n+1, got, tt.downloads)
		}
		table, err := partition.Read(t.Context(), disk)
		if partitions := map[bool]int{false: 1, true: 2}[tt.drive]; err != nil || len(table.Partitions) != partitions {
			t.Fatalf("call %d: got table %+v and %v, want %d partitions", n+1, table, err, partitions)
		}
		if sum := sha256.Sum256(driveBytes); tt.drive {
			got := sumOf(t, disk, table.Partitions[1].Start, int64(len(driveBytes)))
			if want := hex.EncodeToString(sum[:]); got != want {
				t.Errorf("call %d: config drive has SHA-256 %s, want %s", n+1, got, want)
			}
		}
	}
	if got, want := sumOf(t, disk, mib, 16*mib), sumOf(t, raw, mib, 16*mib); got != want {
		t.Errorf("the disk's partition has SHA-256 %s, want %s", got, want)
	}
	info.Source.Digest = sha256Digest(strings.Repeat("0", 64))
	if text, err := i.Cache(t.Context(), info, "", false); typeOf(err) != "ImageChecksumError" {
		t.Errorf("got %q, %v, want an ImageChecksumError", text, err)
	}
}

// cache_image of a partition image reports that the image is on the disk, and writes it by force.
func TestCachePartitionImage(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	raw := rootImage(t, rootUUID)
	_, i := layoutDisk(t, 512, "boot_mode:bios")
	info := partitionImage(t, raw, serve(t, raw).URL, "raw", small(func(p *PartitionInfo) { p.Swap = 0 }))
	for _, tt := range []struct {
		force bool
		want  string
	}{{false, "cached to"}, {false, "already present on"}, {true, "cached to"}} {
		text, err := i.Cache(t.Context(), info, "", tt.force)
		if err != nil || !strings.Contains(text, ") "+tt.want+" device ") {
			t.Errorf("force %t: got %q, %v, want %q", tt.force, text, err, tt.want)
		}
	}
}
