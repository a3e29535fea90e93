package image

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/image/fetch"
)

// memory is a web server without a network: it serves one file.
type memory []byte

func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(m))
	response := w.Result()
	response.Request = r // as http.Transport does
	return response, nil
}

// FuzzWrite writes arbitrary files as images without a declared format. A failure leaves a disk that is unchanged or
// does not boot.
func FuzzWrite(f *testing.F) {
	for _, name := range []string{"v3.qcow2", "v2-zlib.qcow2", "zstd.qcow2", "extended.qcow2"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, name := range []string{"blocks.xz", "padded.xz"} {
		f.Add(testenv.Data(f, "images/"+name))
	}
	f.Add([]byte("raw"))
	f.Add(fixedVHDImage(f, make([]byte, foreignSize))[foreignSize-1000:])
	f.Add(withVMDKFooter(f, make([]byte, foreignSize)))
	used := bytes.Repeat([]byte{0xa5}, 3*mib)
	f.Fuzz(func(t *testing.T, file []byte) {
		disk := filepath.Join(imagetest.MemoryDir(t), "disk")
		if err := os.WriteFile(disk, used, 0o600); err != nil {
			t.Fatal(err)
		}
		src := Source{
			URLs: urls("http://host/image"), Checksum: sha256Of(file),
			Fetch: fetch.Options{Client: &http.Client{Transport: memory(file)}},
		}
		report, err := Write(t.Context(), disk, src, Options{})
		if err != nil {
			start := imagetest.ReadAt(t, disk, 0, mib)
			if !isZero(start) && !bytes.Equal(testenv.Content(t, disk), used) {
				t.Errorf("after %v the disk has a first MiB, and is not what it was", err)
			}
			return
		}
		if report.Bytes != int64(len(file)) || report.Size > int64(len(used)) {
			t.Errorf("got report %+v of a file of %d bytes", report, len(file))
		}
		if report.Format == formatQcow2 || report.Compression != "" {
			return
		}
		written := io.LimitReader(bytes.NewReader(testenv.Content(t, disk)), int64(len(file)))
		if got, err := io.ReadAll(written); err != nil || !bytes.Equal(got, file) {
			t.Errorf("the disk does not hold the file of %d bytes, written as %s (%v)", len(file), report.Format, err)
		}
	})
}
