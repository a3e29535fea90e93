package configdrive

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

const mib = 1 << 20

func pack(t *testing.T, drive []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(drive); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// volume returns size bytes that are recognised as ISO 9660.
func volume(size int) []byte {
	drive := make([]byte, size)
	copy(drive[32768:], "\x01CD001\x01")
	return drive
}

func TestLoad(t *testing.T) {
	drive := volume(3 * mib)
	if _, err := rand.Read(drive[mib:]); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	text := pack(t, drive)
	if _, err := io.Copy(&packed, base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i := 0; i < len(text); i += 76 {
		lines.WriteString(text[i:min(i+76, len(text))] + "\r\n")
	}
	huge := pack(t, make([]byte, MaxSize+1))
	cases := []struct {
		name, source, body string
		want               []byte
		err                string
	}{
		{"text", text, "", drive, ""},
		{"text in lines", "\n " + lines.String(), "", drive, ""},
		{"not base64", "%%%", "", nil, "base64"},
		{"base64 of no gzip", "aGVsbG8gd29ybGQ=", "", nil, "gzip"},
		{"cut off", text[:len(text)/2], "", nil, "unpack"},
		{"empty", "", "", nil, "base64"},
		{"unpacks to too much", huge, "", nil, ErrTooLarge.Error()},
		{"exactly the limit", pack(t, volume(MaxSize)), "", volume(MaxSize), ""},
		{"URL, text", "https://host/drive", lines.String(), drive, ""},
		{"URL, image", "HTTP://host/drive", string(drive), drive, ""},
		{"URL, image too large", "http://host/drive", string(make([]byte, MaxSize+1)), nil, ErrTooLarge.Error()},
		{"URL, text of too much", "http://host/drive", huge, nil, ErrTooLarge.Error()},
		{"URL, base64 of no gzip", "http://host/drive", "aGVsbG8g\nd29ybGQ=", nil, "gzip"},
		{"URL, text that is not base64", "http://host/drive", "hello!", nil, "/drive: no file system: got text/plain"},
		{"URL, HTML", "http://host/drive", "\n<html><h1>Sign in</h1></html>", nil, "got text/html"},
		{"URL, gzip data", "http://host/drive", packed.String(), nil, "got application/x-gzip"},
		{"URL, text of gzip data twice", "http://host/drive", pack(t, packed.Bytes()), nil, "got application/x-gzip"},
		{"URL, zeros", "http://host/drive", string(make([]byte, mib)), nil, "no file system"},
		{"text of HTML", pack(t, []byte("<html></html>")), "", nil, "got text/html"},
		{"URL, empty", "http://host/drive", "", nil, "empty"},
		{"file", "file:///etc/shadow", "x", nil, "scheme"},
		{"ftp", "ftp://host/x", "x", nil, "scheme"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Load(context.Background(), c.source,
				openFunc(func(_ context.Context, url string) (io.ReadCloser, error) {
					if url != c.source {
						t.Errorf("opened %q", url)
					}
					return io.NopCloser(strings.NewReader(c.body)), nil
				}))
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("got error %v, want %q", err, c.err)
			}
			if !bytes.Equal(got, c.want) {
				t.Errorf("got %d bytes, want %d", len(got), len(c.want))
			}
		})
	}
}

// openFunc is an [Opener] of a test.
type openFunc func(ctx context.Context, url string) (io.ReadCloser, error)

// Open implements [Opener].
func (f openFunc) Open(ctx context.Context, url string) (io.ReadCloser, error) { return f(ctx, url) }

func TestLoadHidesSignature(t *testing.T) {
	failure := errors.New("connection refused")
	_, err := Load(context.Background(), "https://user:pw@host/d?signature=secret",
		openFunc(func(context.Context, string) (io.ReadCloser, error) {
			return nil, failure
		}))
	if !errors.Is(err, failure) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "pw@") {
		t.Errorf("got %v", err)
	}
}

// metadata is the content of the only file on the drive.
const metadata = `{"uuid": "1"}`

// iso makes a config drive as Ironic does.
func iso(t *testing.T) []byte {
	t.Helper()
	testenv.Programs(t, "genisoimage")
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "openstack/latest"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "openstack/latest/meta_data.json"), []byte(metadata), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "iso")
	testenv.Run(t, "genisoimage", "-quiet", "-J", "-r", "-V", "config-2", "-o", out, dir)
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// loop makes a disk with the table that a shell command writes; $0 is the image.
func loop(t *testing.T, size int64, sector int, table string) string {
	t.Helper()
	testenv.Programs(t, "sgdisk", "sfdisk", "mkfs.vfat")
	device := testenv.Loop(t, testenv.SparseFile(t, size), sector)
	testenv.Run(t, "sh", "-c", "PATH=$PATH:/usr/sbin; "+table, device)
	return device
}

func content(t *testing.T, path string, size int) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWriteCreates(t *testing.T) {
	drive := iso(t)
	for name, table := range map[string]string{
		"gpt": `sgdisk -n 1:0:+8M "$0"`,
		"mbr": `printf 'label: dos\nstart=2048, size=2048\n' | sfdisk -q "$0"`,
	} {
		t.Run(name, func(t *testing.T) {
			device := loop(t, 200*mib, 512, table)
			path, err := Write(context.Background(), sysfs.Root{}, device, drive, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if path != device+"p2" || !bytes.Equal(content(t, path, len(drive)), drive) {
				t.Errorf("%s does not hold the drive", path)
			}
			found, err := partition.Read(context.Background(), device)
			if err != nil {
				t.Fatal(err)
			}
			if p := found.Partitions[1]; p.Start < 134*mib || p.Size < MaxSize {
				t.Errorf("got %+v, want the last 64 MiB", p)
			}
			out := testenv.Run(t, "blkid", "-p", "-s", "LABEL", "-o", "value", path)
			if strings.TrimSpace(out) != Label {
				t.Errorf("blkid finds the label %q", out)
			}
			again, err := Write(context.Background(), sysfs.Root{}, device, drive, Options{})
			if err != nil || again != path {
				t.Errorf("a second time: got %q, %v", again, err)
			}
		})
	}
}

func TestFromSourceToDisk(t *testing.T) {
	drive := iso(t)
	testenv.Programs(t, "isoinfo")
	text := pack(t, drive)
	sources := map[string]struct{ source, body string }{
		"text": {text, ""}, "URL of text": {"http://host/drive", text},
		"URL of the image": {"http://host/drive", string(drive)},
	}
	for name, c := range sources {
		t.Run(name, func(t *testing.T) {
			open := func(context.Context, string) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(c.body)), nil
			}
			loaded, err := Load(context.Background(), c.source, openFunc(open))
			if err != nil {
				t.Fatal(err)
			}
			device := loop(t, 200*mib, 512, `sgdisk -n 1:0:+8M "$0"`)
			path, err := Write(context.Background(), sysfs.Root{}, device, loaded, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := testenv.Run(t, "isoinfo", "-i", path, "-J", "-x", "/openstack/latest/meta_data.json")
			if got != metadata {
				t.Errorf("the drive's file holds %q, want %q", got, metadata)
			}
		})
	}
}

func TestWriteReuses(t *testing.T) {
	drive := iso(t)
	device := loop(t, 64*mib, 512, `sgdisk -n 1:0:+8M -n 2:0:+8M -n 3:0:+8M "$0"`)
	if err := partition.Sync(context.Background(), sysfs.Root{}, device); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.vfat", "-n", "CONFIG-2", device+"p2")
	path, err := Write(context.Background(), sysfs.Root{}, device, drive, Options{})
	if err != nil || path != device+"p2" {
		t.Fatalf("got %q, %v", path, err)
	}
	if !bytes.Equal(content(t, path, len(drive)), drive) {
		t.Error("the partition does not hold the drive")
	}
	if _, err := Write(context.Background(), sysfs.Root{}, device, make([]byte, 9*mib), Options{}); err == nil {
		t.Error("a drive larger than the partition was accepted")
	}
	testenv.Run(t, "mkfs.vfat", "-n", "config-2", device+"p3")
	if _, err := Write(context.Background(), sysfs.Root{}, device, drive, Options{}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("got %v, want ErrDuplicate", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	drive := make([]byte, mib)
	t.Run("too large", func(t *testing.T) {
		_, err := Write(context.Background(), sysfs.Root{}, "/dev/null", make([]byte, MaxSize+1), Options{})
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v, want ErrTooLarge", err)
		}
	})
	t.Run("four primary partitions", func(t *testing.T) {
		device := loop(t, 200*mib, 512,
			`printf 'label: dos\nsize=2048\nsize=2048\nsize=2048\nsize=2048\n' | sfdisk -q "$0"`)
		_, err := Write(context.Background(), sysfs.Root{}, device, drive, Options{})
		if err == nil || !strings.Contains(err.Error(), "primary") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no table", func(t *testing.T) {
		device := testenv.Loop(t, testenv.SparseFile(t, 200*mib), 512)
		_, err := Write(context.Background(), sysfs.Root{}, device, drive, Options{})
		if !errors.Is(err, partition.ErrNoTable) {
			t.Errorf("got %v, want ErrNoTable", err)
		}
	})
}

func FuzzLoad(f *testing.F) {
	f.Add("H4sIAAAAAAAA")
	f.Add("http://x/")
	f.Fuzz(func(t *testing.T, source string) {
		open := func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(source)), nil
		}
		drive, err := Load(context.Background(), source, openFunc(open))
		if err == nil && (len(drive) == 0 || len(drive) > MaxSize) {
			t.Errorf("got %d bytes", len(drive))
		}
	})
}

// Errors do not quote what a server sends in place of a drive.
func TestErrorsDoNotRepeatTheDrive(t *testing.T) {
	const planted = "pl4nted-s3cret"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, planted); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil { // without an end
		t.Fatal(err)
	}
	for _, body := range []string{
		gzipText + planted, gzipText + "AAA" + planted + "%%%", base64.StdEncoding.EncodeToString(packed.Bytes()),
		gzipText + "\n" + base64.StdEncoding.EncodeToString([]byte(planted)),
	} {
		_, err := Load(t.Context(), "http://user:pw@host/drive?key="+planted,
			openFunc(func(context.Context, string) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(body)), nil
			}))
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "host/drive") {
			t.Errorf("body %q: got %v, want an error that names the URL alone", body, err)
		}
	}
}

// endless is white space without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

// A server cannot keep Load busy with text that contains nothing.
func TestLoadEndlessText(t *testing.T) {
	text := pack(t, make([]byte, mib))
	open := openFunc(func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(text), endless{})), nil
	})
	if _, err := Load(t.Context(), "http://host/drive", open); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want %v", err, ErrTooLarge)
	}
}
