package extension

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// imageRig is a rig with a disk, and an image that can be deployed onto it.
type imageRig struct {
	*rig
	disk  string
	image []byte
}

func newImageRig(t *testing.T) *imageRig {
	t.Helper()
	const size = 4 << 30 // the smallest disk that is chosen without hints
	r := &imageRig{rig: newRig(t), disk: testenv.Loop(t, testenv.SparseFile(t, size), 512), image: make([]byte, 3<<20)}
	r.disks = []block.Device{{Name: filepath.Base(r.disk), Path: r.disk, Type: "disk", Size: size}}
	rand.NewChaCha8([32]byte{10}).Read(r.image[1<<20:]) //nolint:errcheck // never fails
	copy(r.image[446:], []byte{0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0})
	copy(r.image[510:], "\x55\xaa")
	r.deps.Config.Update(func(c *config.Config) {
		c.ImageDownloadConnectionTimeout, c.Insecure = 10*time.Second, true
	})
	return r
}

// deploy writes the image from a URL, with more fields in image_info.
func (r *imageRig) deploy(address string, more map[string]any) answer {
	r.t.Helper()
	sum := sha256.Sum256(r.image)
	info := map[string]any{
		"id": "i", "urls": []string{address}, "disk_format": "raw", "stream_raw_images": true,
		"os_hash_algo": "sha256", "os_hash_value": hex.EncodeToString(sum[:]),
	}
	maps.Copy(info, more)
	return r.run("standby.prepare_image", map[string]any{"image_info": info})
}

// wantImage fails unless a command succeeded and the disk begins with the image. It then wipes the disk.
func (r *imageRig) wantImage(t *testing.T, a answer) {
	t.Helper()
	if a.Status != "SUCCEEDED" {
		t.Fatalf("got %s %+v, want SUCCEEDED", a.Status, a.Error)
	}
	disk, err := os.OpenFile(r.disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	got := make([]byte, len(r.image))
	if _, err := io.ReadFull(disk, got); err != nil || !bytes.Equal(got, r.image) {
		t.Errorf("the disk does not contain the image (%v)", err)
	}
	if _, err := disk.WriteAt(make([]byte, len(r.image)), 0); err != nil {
		t.Fatal(err)
	}
}

// asked is a handler that records its requests.
type asked struct {
	http.Handler
	mu       sync.Mutex
	requests []*http.Request
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
	a.Handler.ServeHTTP(w, r)
}

func (a *asked) take() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.requests
	a.requests = nil
	return all
}

func (r *imageRig) content() http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(r.image))
	}
}

func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// Images of formats that are not permitted are rejected, unless Ironic disabled the inspection of images.
//
// Parity: K7 (permitted formats)
func TestPermittedFormats(t *testing.T) {
	r := newImageRig(t)
	url := listen(t, r.content())
	for _, off := range []bool{false, true} {
		r.deps.Config.Update(func(c *config.Config) {
			c.PermittedImageFormats, c.DisableDeepImageInspection = []string{"qcow2"}, off
		})
		a := r.deploy(url, map[string]any{"disk_format": "unknown"})
		if off {
			r.wantImage(t, a)
		} else if a.Status != "FAILED" || a.Error.Type != "InvalidImage" ||
			!strings.Contains(a.Error.Details, "not permitted") {
			t.Errorf("got %s %+v, want an InvalidImage", a.Status, a.Error)
		}
	}
}

// Parity: K10 (time)
func TestDownloadTimeLimits(t *testing.T) {
	r := newImageRig(t)
	silent := listen(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Write(r.image[:2<<20]) //nolint:errcheck // the client can disconnect
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	}))
	for _, tt := range []struct {
		name   string
		set    func(c *config.Config)
		want   string
		code   int
		detail string
	}{
		{
			"silence", func(c *config.Config) { c.ImageDownloadConnectionTimeout = 100 * time.Millisecond },
			"ImageDownloadError", 500, "no data arrived in time",
		},
		{
			"maximum duration, however many retries are left", func(c *config.Config) {
				c.ImageDownloadMaxDuration, c.ImageDownloadConnectionRetries = 100*time.Millisecond, 1000
			}, "ImageDownloadTimeoutError", 408, "longer than the maximum of 100ms",
		},
	} {
		before := *r.deps.Config.Get()
		r.deps.Config.Update(tt.set)
		a := r.deploy(silent, nil)
		if a.Status != "FAILED" || a.Error.Type != tt.want || a.Error.Code != tt.code ||
			!strings.Contains(a.Error.Details, tt.detail) {
			t.Errorf("%s: got %s %+v, want %s with code %d", tt.name, a.Status, a.Error, tt.want, tt.code)
		}
		r.deps.Config.Update(func(c *config.Config) { *c = before })
	}
}

// relay is a proxy that handles plain requests with content and connects all tunnels to the address of a TLS server.
func relay(content http.Handler, server string) *asked {
	return &asked{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			content.ServeHTTP(w, r)
			return
		}
		far, err := net.Dial("tcp", server)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer far.Close()
		near, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer near.Close()
		// Errors of a tunnel appear at its ends.
		_, _ = io.WriteString(near, "HTTP/1.1 200 Connected\r\n\r\n")
		go func() {
			_, _ = io.Copy(far, near)
			_ = far.Close()
		}()
		_, _ = io.Copy(near, far)
	})}
}

// Parity: K11
func TestProxies(t *testing.T) {
	r := newImageRig(t)
	images := &asked{Handler: r.content()}
	secure := httptest.NewTLSServer(images)
	t.Cleanup(secure.Close)
	plainURL := listen(t, images)
	proxy := relay(images, secure.Listener.Addr().String())
	proxyURL := listen(t, proxy)
	withPassword := strings.Replace(proxyURL, "//", "//squid:secret@", 1)
	// 0.0.0.0 reaches this machine, and unlike 127.0.0.1 it is not excluded from proxies.
	local := strings.Replace(plainURL, "127.0.0.1", "0.0.0.0", 1)
	for _, tt := range []struct {
		name, address string
		proxies       map[string]string
		noProxy       string
		methods       []string // of the requests that the proxy received
		credentials   bool
	}{
		{
			name: "http", address: "http://images.example/i?x=1", proxies: map[string]string{"http": proxyURL},
			methods: []string{"GET"},
		},
		{
			name: "without a scheme", address: "http://images.example/i",
			proxies: map[string]string{"http": strings.TrimPrefix(proxyURL, "http://")}, methods: []string{"GET"},
		},
		{
			name: "https", address: "https://images.example/i", proxies: map[string]string{"https": proxyURL},
			methods: []string{"CONNECT"},
		},
		{
			name: "with a password", address: "https://images.example/i",
			proxies: map[string]string{"https": withPassword}, methods: []string{"CONNECT"}, credentials: true,
		},
		{name: "for the other scheme", address: local, proxies: map[string]string{"https": proxyURL}},
		{
			name: "no_proxy, address", address: local, proxies: map[string]string{"http": proxyURL},
			noProxy: "images.example,0.0.0.0",
		},
		{name: "no_proxy, network", address: local, proxies: map[string]string{"http": proxyURL}, noProxy: "0.0.0.0/8"},
		{name: "no_proxy, all", address: local, proxies: map[string]string{"http": proxyURL}, noProxy: "*"},
		{
			name: "no_proxy for others", address: local, proxies: map[string]string{"http": proxyURL},
			noProxy: ".example", methods: []string{"GET"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy.take()
			more := map[string]any{"proxies": tt.proxies}
			if tt.noProxy != "" {
				more["no_proxy"] = tt.noProxy
			}
			r.wantImage(t, r.deploy(tt.address, more))
			var methods []string
			for _, q := range proxy.take() {
				methods = append(methods, q.Method)
				if got := q.Header.Get("Proxy-Authorization") != ""; got != tt.credentials {
					t.Errorf("credentials for the proxy: got %v, want %v", got, tt.credentials)
				}
				if want, err := url.Parse(tt.address); err != nil || !strings.HasPrefix(q.Host, want.Hostname()) {
					t.Errorf("request to the proxy: got host %s, want that of %s", q.Host, tt.address)
				}
			}
			if !slices.Equal(methods, tt.methods) {
				t.Errorf("requests to the proxy: got %v, want %v", methods, tt.methods)
			}
		})
	}
}

// Parity: K12
func TestImageAuthorization(t *testing.T) {
	r := newImageRig(t)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:pass word"))
	const (
		bearer = "Bearer eyJhbGciOi"
		swift  = "/v1/AUTH_test/images/i?temp_url_sig=da39a3ee&temp_url_expires=1999999999&filename=i%20raw"
	)
	guarded := func(header, request string) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Authorization") != header || q.URL.RequestURI() != request {
				http.Error(w, "who are you", http.StatusUnauthorized)
				return
			}
			r.content()(w, q)
		}
	}
	others := &asked{Handler: r.content()}
	storage := strings.Replace(listen(t, others), "127.0.0.1", "localhost", 1)
	imageBasic := map[string]any{
		"image_server_auth_strategy": "http_basic", "image_server_user": "user", "image_server_password": "pass word",
	}
	supplied := map[string]any{"image_request_authorization": base64.StdEncoding.EncodeToString([]byte(bearer))}
	both := maps.Clone(imageBasic)
	maps.Copy(both, supplied)
	for _, tt := range []struct {
		name    string
		server  http.HandlerFunc
		request string
		more    map[string]any
		config  func(c *config.Config)
		fails   string
	}{
		{name: "basic", server: guarded(basic, "/i"), request: "/i", more: imageBasic},
		{name: "basic by configuration", server: guarded(basic, "/i"), request: "/i", config: func(c *config.Config) {
			c.ImageServerAuthStrategy, c.ImageServerUser, c.ImageServerPassword = "http_basic", "user", "pass word"
		}},
		{
			name: "basic of the image before that of the configuration", server: guarded(basic, "/i"), request: "/i",
			more: imageBasic, config: func(c *config.Config) {
				c.ImageServerAuthStrategy, c.ImageServerUser, c.ImageServerPassword = "http_basic", "other", "other"
			},
		},
		{
			name: "basic without a password", server: guarded(basic, "/i"), request: "/i",
			more:  map[string]any{"image_server_auth_strategy": "http_basic", "image_server_user": "user"},
			fails: "ImageDownloadError",
		},
		{name: "none where required", server: guarded(basic, "/i"), request: "/i", fails: "ImageDownloadFatalError"},
		{
			name: "blob of a registry with a bearer token", server: guarded(bearer, "/v2/os/blobs/sha256:aa"),
			request: "/v2/os/blobs/sha256:aa", more: supplied,
		},
		{name: "supplied header before basic", server: guarded(bearer, "/i"), request: "/i", more: both},
		{name: "registry that redirects to its storage", server: func(w http.ResponseWriter, q *http.Request) {
			if q.Header.Get("Authorization") != bearer {
				http.Error(w, "who are you", http.StatusUnauthorized)
				return
			}
			http.Redirect(w, q, storage+"/blob?sig=1", http.StatusTemporaryRedirect)
		}, request: "/v2/os/blobs/sha256:aa", more: supplied},
		{name: "Swift temporary URL", server: guarded("", swift), request: swift},
		{
			name: "Swift temporary URL that has expired", server: guarded("", "/"), request: swift,
			fails: "ImageDownloadFatalError",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := *r.deps.Config.Get()
			defer r.deps.Config.Update(func(c *config.Config) { *c = before })
			if tt.config != nil {
				r.deps.Config.Update(tt.config)
			}
			a := r.deploy(listen(t, tt.server)+tt.request, tt.more)
			if tt.fails == "" {
				r.wantImage(t, a)
				return
			}
			if a.Status != "FAILED" || a.Error.Type != tt.fails {
				t.Fatalf("got %s %+v, want %s", a.Status, a.Error, tt.fails)
			}
			for _, secret := range []string{"temp_url_sig", "da39a3ee", "pass word"} {
				if strings.Contains(a.Error.Details, secret) {
					t.Errorf("the error contains a secret: %s", a.Error.Details)
				}
			}
		})
	}
	for _, q := range others.take() {
		if got := q.Header.Get("Authorization"); got != "" {
			t.Errorf("the storage of the registry was sent the authorization %q", got)
		}
	}
}
