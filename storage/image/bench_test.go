package image

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/checksum"
)

const benchSize = 512 * mib

// benchDisk returns a preallocated file where O_DIRECT works, or the device that BENCH_DISK names: its content is lost.
func benchDisk(b *testing.B) string {
	b.Helper()
	if device := os.Getenv("BENCH_DISK"); device != "" {
		return device
	}
	dir, err := os.MkdirTemp("/var/tmp", "ironroot-bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	name := filepath.Join(dir, "disk")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	testenv.Run(b, "dd", "if=/dev/urandom", "of="+name, "bs=1M", "count=512", "status=none", "conv=fsync")
	return name
}

// benchServer sends the same 512 MiB again and again from memory.
func benchServer(b *testing.B) (*imagetest.Server, checksum.Sum) {
	b.Helper()
	data := imagetest.RandomBytes(1, benchSize)
	return imagetest.Serve(b, func(w http.ResponseWriter, r *http.Request) { imagetest.WithoutRanges(data)(w, r) }),
		sha256Of(data)
}

// BenchmarkWriteRaw writes a raw image with SHA-256; BenchmarkCurlDd is its baseline.
func BenchmarkWriteRaw(b *testing.B) {
	disk := benchDisk(b)
	server, sum := benchServer(b)
	b.SetBytes(benchSize)
	for b.Loop() {
		src := Source{URLs: urls(server.URL), Format: "raw", Checksum: sum}
		if _, err := Write(b.Context(), disk, src, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCurlDd writes the same image with curl and dd, without any check.
func BenchmarkCurlDd(b *testing.B) {
	testenv.Programs(b, "curl", "dd")
	disk := benchDisk(b)
	server, _ := benchServer(b)
	b.SetBytes(benchSize)
	for b.Loop() {
		pipe := "set -o pipefail; curl -s " + server.URL + " | dd of=" + disk +
			" bs=4M iflag=fullblock oflag=direct conv=notrunc,fsync status=none"
		if out, err := exec.Command("bash", "-c", pipe).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}
