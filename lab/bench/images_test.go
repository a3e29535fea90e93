package bench

import (
	"bufio"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
)

// BenchmarkImages writes images over loopback HTTP to a file on this machine's disk, in turn with common tools and
// with the image writer, which validates the checksum. ratio is the tools' time divided by the image writer's, median
// of pairs: above 1 the image writer is faster. cpu-ratio is the same for processor time, which depends less on the
// machine's load. The server is a separate process. Raw images are compared with `curl | dd oflag=direct bs=4M`,
// which validates nothing, and with `curl | tee >(sha256sum) | dd iflag=fullblock oflag=direct bs=4M`, which does the
// same work; qcow2 images with the steps of ironic-python-agent: download into memory, sha256sum, `qemu-img convert -t
// none`.
//
// BENCH_DIR names a directory for the target on another disk than /var/tmp. With -short the images have an eighth of
// the size.
func BenchmarkImages(b *testing.B) {
	testenv.Programs(b, "curl", "dd", "qemu-img", "sha256sum")
	half, quarter := newBenchDisk(b, 2), newBenchDisk(b, 4)
	for _, c := range []struct {
		name      string
		image     string
		format    string
		algorithm string
		theirs    func(b *testing.B, url, target string)
	}{
		{"raw-sha256", half, "raw", "sha256", curlDD},
		{"raw-sha256-both", half, "raw", "sha256", verifiedDD(sumOf(b, half, "sha256"))},
		{"raw-three-quarters-zeros-both", quarter, "raw", "sha256", verifiedDD(sumOf(b, quarter, "sha256"))},
		{"raw-sha512", half, "raw", "sha512", curlDD},
		{"raw-three-quarters-zeros", quarter, "raw", "sha256", curlDD},
		{"qcow2", qcow2Of(b, half), "qcow2", "sha256", oneAfterAnother},
		{"qcow2-zlib", qcow2Of(b, half, "-c"), "qcow2", "sha256", oneAfterAnother},
		{"qcow2-zstd", qcow2Of(b, half, "-c", "-o", "compression_type=zstd"), "qcow2", "sha256", oneAfterAnother},
	} {
		b.Run(c.name, func(b *testing.B) { race(b, c.image, c.format, c.algorithm, c.theirs) })
	}
}

// benchSize returns the size of the images' disks in bytes.
func benchSize() int64 {
	if testing.Short() {
		return 256 << 20
	}
	return 2 << 30
}

// newBenchDisk creates a raw image in memory. One part-th of it is data in ranges of several MiB, the rest zeros.
// Half of the data is compressible.
func newBenchDisk(b *testing.B, part int64) string {
	path := filepath.Join(imagetest.MemoryDir(b), fmt.Sprintf("disk-%d.raw", part))
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(benchSize()); err != nil {
		b.Fatal(err)
	}
	const stretch = 16 << 20
	source := rand.NewChaCha8([32]byte{byte(part)})
	data := make([]byte, stretch)
	for off := int64(0); off < benchSize(); off += stretch * part {
		source.Read(data) //nolint:errcheck // never fails
		for i := 0; i < stretch; i += 8 << 10 {
			copy(data[i:i+4<<10], strings.Repeat("a file of an operating system ", 4<<10/30))
		}
		if _, err := f.WriteAt(data, off); err != nil {
			b.Fatal(err)
		}
	}
	return path
}

func qcow2Of(b *testing.B, raw string, options ...string) string {
	path := filepath.Join(imagetest.MemoryDir(b), "image.qcow2")
	args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...)
	testenv.Run(b, "qemu-img", append(args, raw, path)...)
	return path
}

// servedDir is an environment variable. If it is set, this program only serves the directory that it names, because
// the server must not count as processor time of the benchmark.
const servedDir = "IRONROOT_BENCH_SERVE"

func TestMain(m *testing.M) {
	dir := os.Getenv(servedDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // until it is killed
	if err == nil {
		fmt.Println("http://" + listener.Addr().String())
		err = http.Serve(listener, http.FileServer(http.Dir(dir))) //nolint:gosec // on this machine only
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// serve starts a process that serves a directory, and returns its URL.
func serve(b *testing.B, dir string) string {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	server := exec.CommandContext(b.Context(), program)
	server.Env, server.Stderr = append(os.Environ(), servedDir+"="+dir), os.Stderr
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Wait() }) // killed when the benchmark's context ends
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// race writes the same image with both contestants in turn, each time to a new target, and compares the targets.
func race(b *testing.B, file, format, algorithm string, theirs func(b *testing.B, url, target string)) {
	const rounds = 3
	url := serve(b, filepath.Dir(file)) + "/" + filepath.Base(file)
	parsed, err := fetch.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	src := image.Source{
		URLs: []fetch.URL{parsed}, Format: format,
		Checksum: checksum.Sum{Algorithm: algorithm, Value: sumOf(b, file, algorithm)},
	}

	var ours, their, ratios, cpu []float64
	for range rounds {
		one, two := target(b), target(b)
		a := measure(func() { theirs(b, url, one) })
		z := measure(func() {
			if _, err := image.Write(b.Context(), two, src, image.Options{}); err != nil {
				b.Fatal(err)
			}
		})
		ours, their = append(ours, z.wall), append(their, a.wall)
		ratios, cpu = append(ratios, a.wall/z.wall), append(cpu, a.cpu/z.cpu)
		testenv.Run(b, "cmp", one, two)
		for _, path := range []string{one, two} {
			if err := os.Remove(path); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(their), "theirs-s")
	b.ReportMetric(median(ours), "ours-s")
	b.ReportMetric(median(cpu), "cpu-ratio")
}

// cost is the duration and the processor time of an operation in seconds. cpu includes this process and its children
// that have ended.
type cost struct{ wall, cpu float64 }

func measure(work func()) cost {
	begin, before := time.Now(), cpuTime()
	work()
	return cost{time.Since(begin).Seconds(), (cpuTime() - before).Seconds()}
}

func cpuTime() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		if unix.Getrusage(who, &usage) == nil {
			sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
	}
	return sum
}

func sumOf(b *testing.B, file, algorithm string) string {
	sums := map[string]hash.Hash{"sha256": sha256.New(), "sha512": sha512.New()}
	f, err := os.Open(file)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(sums[algorithm], f); err != nil {
		b.Fatal(err)
	}
	return hex.EncodeToString(sums[algorithm].Sum(nil))
}

// target creates a file of the images' size on the disk. All its blocks are allocated and contain zeros.
func target(b *testing.B) string {
	dir := os.Getenv("BENCH_DIR")
	if dir == "" {
		dir = "/var/tmp"
	}
	f, err := os.CreateTemp(dir, "ironroot-bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.Remove(f.Name()) }) // in case the benchmark was aborted
	defer f.Close()
	testenv.Run(b, "dd", "if=/dev/zero", "of="+f.Name(), "bs=4M", fmt.Sprintf("count=%d", benchSize()>>22),
		"oflag=direct", "conv=fsync", "status=none")
	return f.Name()
}

func curlDD(b *testing.B, url, target string) {
	shell(b, "curl -sf "+url+" | dd of="+target+" oflag=direct bs=4M conv=notrunc,fsync status=none")
}

// verifiedDD returns curlDD with a comparison of the SHA-256 sum. The substitution ends when sha256sum does.
func verifiedDD(sum string) func(b *testing.B, url, target string) {
	return func(b *testing.B, url, target string) {
		shell(b, "sum=$({ curl -sf "+url+" | tee >(sha256sum >&3) | dd of="+target+
			" iflag=fullblock oflag=direct bs=4M conv=notrunc,fsync status=none; } 3>&1) && [ ${sum%% *} = "+sum+" ]")
	}
}

func oneAfterAnother(b *testing.B, url, target string) {
	copied := filepath.Join(imagetest.MemoryDir(b), "copy")
	shell(b, "curl -sf -o "+copied+" "+url+" && sha256sum "+copied+" >"+copied+
		".sum && qemu-img convert -n -t none -W -f qcow2 -O raw "+
		copied+" "+target+" && sync "+target+" && rm "+copied)
}

func shell(b *testing.B, command string) { testenv.Run(b, "bash", "-o", "pipefail", "-c", command) }
