package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pin/tftp/v3"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// directory returns a directory to serve, next to a secret that links lead to.
func directory(t *testing.T, content []byte) string {
	t.Helper()
	outside := filepath.Join(t.TempDir(), "secret")
	root := t.TempDir()
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o644),
		os.MkdirAll(filepath.Join(root, "sub"), 0o755),
		os.WriteFile(filepath.Join(root, "sub", "file"), content, 0o644),
		os.Symlink("file", filepath.Join(root, "sub", "link")),
		os.Symlink(outside, filepath.Join(root, "escape")),
		os.Symlink("../..", filepath.Join(root, "sub", "up")),
		unix.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// requests collects the requests that servers report.
type requests struct {
	mu   sync.Mutex
	list []Request
}

func (r *requests) Done(request Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, request)
}

// requestChannel receives the requests that servers report.
type requestChannel chan Request

func (c requestChannel) Done(request Request) { c <- request }

func (r *requests) last() Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list[len(r.list)-1]
}

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// escapes are names that must not open a file.
var escapes = []string{
	"/", "/absent", "/sub", "/escape", "/sub/up", "/sub/up/etc/passwd", "/../secret", "/..%2f..%2fetc/passwd",
	"/pipe", "/sub/../../etc/passwd",
}

func TestHTTP(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	root := directory(t, content)
	var seen requests
	h, err := ListenHTTP(t.Context(), FilesConfig{Listen: loopback, Root: root, Requests: &seen})
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, url string, header ...string) (int, string, http.Header) {
		t.Helper()
		request, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body), response.Header
	}
	status, body, header := do("GET", h.URL("sub/file"))
	if status != 200 || body != string(content) {
		t.Errorf("whole file: got %d and %d bytes, want 200 and %d", status, len(body), len(content))
	}
	if got := header.Get("Accept-Ranges"); got != "bytes" {
		t.Errorf("ranges: got %q, want \"bytes\"", got)
	}
	tag := header.Get("ETag")
	if !strings.HasPrefix(tag, `"`) || len(tag) < 3 {
		t.Fatalf("entity tag: got %q, want a strong one", tag)
	}
	if status, body, _ := do("GET", h.URL("sub/link"), "Range", "bytes=5-9"); status != 206 || body != "56789" {
		t.Errorf("range: got %d %q, want 206 \"56789\"", status, body)
	}
	if status, body, _ := do("HEAD", h.URL("sub/file")); status != 200 || body != "" {
		t.Errorf("HEAD: got %d and %d bytes, want 200 and none", status, len(body))
	}
	if status, _, _ := do("GET", h.URL("sub/file"), "If-None-Match", tag); status != 304 {
		t.Errorf("same entity: got %d, want 304", status)
	}
	// A changed file has another tag, even with the same size and second, so that its ranges are not combined with
	// ranges of the old file.
	changed := bytes.Repeat([]byte("abcdefghij"), 1000)
	replacement := filepath.Join(root, "new")
	if err := errors.Join(os.WriteFile(replacement, changed, 0o644),
		os.Rename(replacement, filepath.Join(root, "sub", "file"))); err != nil {
		t.Fatal(err)
	}
	if status, body, _ := do("GET", h.URL("sub/file"), "Range", "bytes=5-9", "If-Range", tag); status != 200 ||
		body != string(changed) {
		t.Errorf("range of a changed file: got %d and %d bytes, want 200 and all", status, len(body))
	}
	for _, path := range escapes {
		if status, body, _ := do("GET", "http://"+h.Addr().String()+path); status < 400 {
			t.Errorf("%s: got %d %q, want an error", path, status, body)
		}
	}
	if status, _, _ := do("PUT", h.URL("sub/file")); status != 405 {
		t.Errorf("PUT: got %d, want 405", status)
	}
	do("GET", h.URL("sub/file"), "Range", "bytes=0-3")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	got := seen.last()
	if got.Path != "/sub/file" || got.Range != "bytes=0-3" || got.Status != 206 || got.Bytes != 4 ||
		got.Protocol != "http" || got.Err != nil {
		t.Errorf("request as reported: got %+v", got)
	}
}

func TestTFTP(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 10_000)
	var seen requests
	server, err := ListenTFTP(t.Context(),
		FilesConfig{Listen: loopback, Root: directory(t, content), Requests: &seen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	get := func(name string) (string, int64, error) {
		client, err := tftp.NewClient(server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client.SetBlockSize(1400)
		client.RequestTSize(true)
		transfer, err := client.Receive(name, "octet")
		if err != nil {
			return "", 0, err
		}
		size, _ := transfer.(tftp.IncomingTransfer).Size()
		var body bytes.Buffer
		_, err = transfer.WriteTo(&body)
		return body.String(), size, err
	}
	// Some firmware reads the name behind the end of option 67, up to the end of the message or padding.
	for _, name := range []string{"sub/file", "/sub/file", `sub\link`, "sub/file\xff", "sub/file\xff\xff"} {
		if body, size, err := get(name); err != nil || body != string(content) || size != int64(len(content)) {
			t.Errorf("%s: got %d bytes, announced %d, %v, want %d", name, len(body), size, err, len(content))
		}
	}
	for _, name := range escapes {
		if body, _, err := get(name); err == nil {
			t.Errorf("%s: got %q, want an error", name, body)
		}
	}
	client, err := tftp.NewClient(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Send("sub/file", "octet"); err == nil {
		t.Error("writing: got no error, want one")
	}
}

// Firmware first requests the size of a file and aborts that transfer, which is no error. A request whose transfer is
// aborted later has failed.
func TestTFTPAborted(t *testing.T) {
	seen := make(chan Request, 1)
	server, err := ListenTFTP(t.Context(), FilesConfig{
		Listen: loopback, Root: directory(t, make([]byte, 2000)), Requests: requestChannel(seen),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	const aborted = "\x00\x05\x00\x08aborted\x00"
	for name, tt := range map[string]struct {
		replies []string // of the client
		status  int
	}{
		"after the options":     {[]string{aborted}, 200},
		"after the first block": {[]string{"\x00\x04\x00\x00", aborted}, 500},
	} {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
		if err != nil {
			t.Fatal(err)
		}
		const request = "\x00\x01sub/file\x00octet\x00tsize\x000\x00"
		if _, err := conn.WriteToUDPAddrPort([]byte(request), server.Addr()); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 1500)
		for _, reply := range tt.replies {
			_, peer, err := conn.ReadFromUDPAddrPort(buffer)
			if err == nil {
				_, err = conn.WriteToUDPAddrPort([]byte(reply), peer)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := <-seen; got.Status != tt.status || (got.Err != nil) != (tt.status == 500) {
			t.Errorf("%s: got status %d, %v, want %d", name, got.Status, got.Err, tt.status)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// curl reads the files that are served.
func TestTFTPByCurl(t *testing.T) {
	testenv.Programs(t, "curl")
	content := strings.Repeat("0123456789", 777)
	server, err := ListenTFTP(t.Context(), FilesConfig{Listen: loopback, Root: directory(t, []byte(content))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	got := testenv.Run(t, "curl", "-sS", "--max-time", "20", "tftp://"+server.Addr().String()+"/sub/file")
	if got != content {
		t.Errorf("got %d bytes, want %d", len(got), len(content))
	}
}

// The end of the context closes the connections.
func TestServersEndWithTheirContext(t *testing.T) {
	root := directory(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h, err := ListenHTTP(ctx, FilesConfig{Listen: loopback, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(eventTimeout)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the end of the context: got %d bytes and %v, want a closed connection", n, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ListenHTTP(t.Context(),
		FilesConfig{Listen: loopback, Root: filepath.Join(root, "absent")}); err == nil {
		t.Error("absent directory: got no error, want one")
	}
}

// Close waits for the transfers, also if the end of the context has stopped the server.
func TestTFTPWaitsForTransfers(t *testing.T) {
	for name, cancelled := range map[string]bool{"closed": false, "context ended": true} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan Request, 1)
		server, err := ListenTFTP(ctx, FilesConfig{
			Listen: loopback, Root: directory(t, make([]byte, 2000)), Requests: requestChannel(ended),
		})
		if err != nil {
			t.Fatal(err)
		}
		server.server.SetTimeout(100 * time.Millisecond)
		server.server.SetRetries(1)
		if _, ok := request(t, server, "127.0.0.1").receive(); !ok { // and is not acknowledged
			t.Fatalf("%s: got an error, want the first block", name)
		}
		if cancelled {
			cancel()
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		select {
		case <-ended:
		default:
			t.Errorf("%s: the transfer had not ended when Close returned", name)
		}
	}
}

func TestScript(t *testing.T) {
	script := Script{
		Kernel: "http://192.0.2.1/k", Initrds: []string{"http://192.0.2.1/a/one?x=1", "http://192.0.2.1/two"},
		Cmdline: "a=1 b", Retries: 3,
	}
	got, err := script.Render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"#!ipxe\n", "\nkernel http://192.0.2.1/k initrd=one initrd=two a=1 b || goto failed\n",
		"\ninitrd --name one http://192.0.2.1/a/one?x=1 || goto failed\n" +
			"initrd --name two http://192.0.2.1/two || goto failed\nboot\n", "iseq ${tries} 3 ",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
	for name, bad := range map[string]Script{
		"no kernel":    {},
		"line break":   {Kernel: "http://k", Cmdline: "secret\nshell"},
		"setting":      {Kernel: "http://k", Cmdline: "secret=${ip}"},
		"command":      {Kernel: "http://k", Cmdline: "secret || shell"},
		"comment":      {Kernel: "http://k", Cmdline: "secret #1"},
		"no file name": {Kernel: "http://k", Initrds: []string{"http://192.0.2.1/"}},
	} {
		if got, err := bad.Render(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %q and %v, want an error without the parameters", name, got, err)
		}
	}
}
