//go:build linux

package conformance

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5" //nolint:gosec // a checksum of the protocol
	"crypto/sha256"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/storage/fat"
)

// gatePort is the port of a server that serves the images under conditions.
const gatePort = 8081

// Fixtures that other programs made, so that their bytes never change: mke2fs 1.47 (2 MiB, ext4 without a journal,
// label image-root) and genisoimage 1.1.11 (-r -J -V config-2, with openstack/latest).
var (
	//go:embed testdata/ext4.img.gz
	ext4Gzip []byte
	//go:embed testdata/config-2.iso.gz
	isoGzip []byte
)

// contents are the files that a machine's servers serve.
type contents map[string][]byte

// publishAll returns a function that serves files by name: on the server of images, and on the gate.
func publishAll(build func(t *testing.T, files contents)) func(m *machine) {
	return func(m *machine) {
		m.t.Helper()
		m.contents = contents{}
		build(m.t, m.contents)
		for name, content := range m.contents {
			m.images.Bytes(name, content)
		}
		listener, err := m.namespace.Listen(m.t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", gatePort))
		if err != nil {
			m.t.Fatal(err)
		}
		server := &http.Server{Handler: gate(m.contents), ReadHeaderTimeout: time.Minute}
		go server.Serve(listener) //nolint:errcheck // returns when it is closed
		m.t.Cleanup(func() { _ = server.Close() })
	}
}

// gate serves files: as a proxy for http://images.invalid, and under /redirect/, /loop/, /basic/ (user and secret),
// /bearer/ (letmein), /cut/ (half of the file), /late/ (without a length) and /STATUS/.
func gate(files contents) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		kind, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if r.URL.Host == "images.invalid" {
			kind, name = "", kind
		}
		content := files[name]
		status := 0
		_, _ = fmt.Sscanf(kind, "%d", &status)
		user, password, _ := r.BasicAuth()
		switch {
		case status > 0:
			http.Error(w, "as requested", status)
		case kind == "redirect":
			http.Redirect(w, r, imageURL+"/"+name, http.StatusFound)
		case kind == "loop":
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		case content == nil:
			http.NotFound(w, r)
		case kind == "basic" && (user != "user" || password != "secret"),
			kind == "bearer" && r.Header.Get("Authorization") != "Bearer letmein":
			w.Header().Set("WWW-Authenticate", kind)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
		case kind == "cut":
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = w.Write(content[:len(content)/2])
			panic(http.ErrAbortHandler)
		case kind == "late":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(content)
		default:
			_, _ = w.Write(content)
		}
	}
}

var derivedPattern = regexp.MustCompile(`\{(md5|sha256|sha512|configdrive|base64) ([^}]+)\}`)

// fill replaces what is derived from files in a request: {sha256 NAME} by a digest, {configdrive NAME} by the file as
// Ironic sends a config drive, {base64 NAME} by base64. Requests in tables are short and do not change with the
// programs that build the files.
func (c contents) fill(text string) string {
	return derivedPattern.ReplaceAllStringFunc(text, func(match string) string {
		parts := derivedPattern.FindStringSubmatch(match)
		content, ok := c[parts[2]]
		if !ok {
			return match
		}
		switch parts[1] {
		case "md5":
			sum := md5.Sum(content) //nolint:gosec // a checksum of the protocol
			return hex.EncodeToString(sum[:])
		case "sha256":
			sum := sha256.Sum256(content)
			return hex.EncodeToString(sum[:])
		case "sha512":
			sum := sha512.Sum512(content)
			return hex.EncodeToString(sum[:])
		case "configdrive":
			return base64.StdEncoding.EncodeToString(compress(content))
		}
		return base64.StdEncoding.EncodeToString(content)
	})
}

func compress(content []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(content) // a buffer does not fail
	_ = w.Close()
	return out.Bytes()
}

func decompress(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// pattern is data without a meaning for any program.
func pattern(name string, size int) []byte {
	text := []byte(strings.Repeat(name+" ", 512/len(name)+1)[:511] + "\n")
	return bytes.Repeat(text, size/len(text)+1)[:size]
}

// convert returns an image in another format of qemu-img.
func convert(t *testing.T, raw []byte, format string, options ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	if err := os.WriteFile(source, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(
		t,
		"qemu-img",
		append(append([]string{"convert", "-f", "raw", "-O", format}, options...), source, target)...)
	data, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// created returns an empty image that qemu-img creates. No other file that it refers to needs to exist.
func created(t *testing.T, arguments ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	testenv.Run(t, "qemu-img", append(append([]string{"create", "-q", "-u"}, arguments[:len(arguments)-1]...), path,
		arguments[len(arguments)-1])...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fatVolume is a FAT file system with a file.
func fatVolume(t *testing.T, label string, size int64) []byte {
	t.Helper()
	out := memory(make([]byte, size))
	content := []byte(`{"uuid": "` + nodeUUID + `"}`)
	leaf := fat.Node{
		Name:    "meta_data.json",
		Size:    int64(len(content)),
		Content: fat.Bytes(content),
	}
	tree := fat.Node{
		Name:  "openstack",
		IsDir: true,
		Nodes: []fat.Node{{Name: "latest", IsDir: true, Nodes: []fat.Node{leaf}}},
	}
	volume := fat.Volume{Size: size, Sector: 512, Label: label, Serial: 0x12345678}
	if err := volume.Write(context.Background(), out, []fat.Node{tree}, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

type memory []byte

func (m memory) WriteAt(p []byte, offset int64) (int, error) { return copy(m[offset:], p), nil }

func TestFill(t *testing.T) {
	files := contents{"a": []byte("abc")}
	got := files.fill(`{"md5": "{md5 a}", "other": "{sha256 b}", "text": "{base64 a}"}`)
	if want := `{"md5": "900150983cd24fb0d6963f7d28e17f72", "other": "{sha256 b}", "text": "YWJj"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBlankAndUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, pattern("old", 30*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := used(path); err != nil {
		t.Fatal(err)
	}
	state, err := describeDisk(path, 512, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Content) != 2 || state.Content[0] != (span{0, 10 * mib, "planted"}) ||
		state.Content[1] != (span{29 * mib, mib, "planted"}) {
		t.Errorf("got %v", state.Content)
	}
}
