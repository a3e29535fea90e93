package fetch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/checksum"
)

// ociRegistry is go-containerregistry's registry in memory, behind an authorization of our own, with a token server.
type ociRegistry struct {
	t      *testing.T
	server *httptest.Server
	tokens *httptest.Server
	files  http.Handler

	mu     sync.Mutex
	auth   string // "bearer", "basic", "harbor" or "" for none
	issued int    // number of tokens; the last one is valid
	basic  []string
	seen   []*http.Request
	blob   http.HandlerFunc // if set, it serves blobs instead of the registry
}

// mediaEmpty is the type of the configuration of an artifact that is not a container.
const mediaEmpty = "application/vnd.oci.empty.v1+json"

const ociCredentials = "Basic dXNlcjpwYXNzd29yZA==" // user:password

func newRegistry(t *testing.T, door string) *ociRegistry {
	t.Helper()
	r := &ociRegistry{t: t, auth: door, files: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewTLSServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.server.Close)
	r.tokens = httptest.NewTLSServer(http.HandlerFunc(r.token))
	t.Cleanup(r.tokens.Close)
	return r
}

func (r *ociRegistry) host() string { return strings.TrimPrefix(r.server.URL, "https://") }

func (r *ociRegistry) good() string { return fmt.Sprintf("token-%d", r.issued) }

// accepted returns the Authorization that the registry accepts.
func (r *ociRegistry) accepted() string {
	if r.auth == "basic" {
		return ociCredentials
	}
	return "Bearer " + r.good()
}

// token is the handler of the token server. It accepts all credentials and none.
func (r *ociRegistry) token(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.basic = append(r.basic, q.Header.Get("Authorization"))
	if q.URL.Query().Get("scope") != "repository:os/image:pull" || q.URL.Query().Get("service") != "our registry" ||
		q.URL.Query().Get("x") != "1" {
		http.Error(w, "what for", http.StatusBadRequest)
		return
	}
	r.issued++
	fmt.Fprintf(w, `{"access_token": %q, "expires_in": 60}`, r.good()) //nolint:errcheck // the client may disconnect
}

func (r *ociRegistry) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.seen = append(r.seen, q)
	want, blob := r.accepted(), r.blob
	r.mu.Unlock()
	if got := q.Header.Get("Authorization"); r.auth != "" && got != want {
		w.Header().Add("WWW-Authenticate", "Negotiate")
		challenge := `Basic realm="registry"`
		// Harbor demands a token of a request without one, and credentials of a request with an expired token.
		if r.auth == "bearer" || r.auth == "harbor" && q.Header.Get("Authorization") == "" {
			challenge = fmt.Sprintf(`Bearer realm="%s/token?x=1", service="our registry",error="insufficient_scope"`,
				r.tokens.URL)
		}
		w.Header().Add("WWW-Authenticate", challenge)
		http.Error(w, `{"errors": []}`, http.StatusUnauthorized)
		return
	}
	if blob != nil && strings.Contains(q.URL.Path, "/blobs/") {
		blob(w, q)
		return
	}
	r.files.ServeHTTP(w, q)
}

// put uploads to the registry without authorization.
func (r *ociRegistry) put(method, path, media string, data []byte) *httptest.ResponseRecorder {
	r.t.Helper()
	q := httptest.NewRequest(method, path, bytes.NewReader(data))
	q.Header.Set("Content-Type", media)
	w := httptest.NewRecorder()
	r.files.ServeHTTP(w, q)
	if w.Code/100 != 2 {
		r.t.Fatalf("%s %s: got %d %s", method, path, w.Code, w.Body)
	}
	return w
}

func (r *ociRegistry) push(data []byte) (digest string) {
	digest = "sha256:" + sha256Of(data).Value
	r.put(http.MethodPost, "/v2/os/image/blobs/uploads/?digest="+digest, "application/octet-stream", data)
	return digest
}

// manifest uploads a manifest or an index, under tag unless it is empty, and returns its digest.
func (r *ociRegistry) manifest(tag string, m map[string]any) (digest string) {
	r.t.Helper()
	media := mediaManifest
	if m["manifests"] != nil {
		media = mediaIndex
	}
	m["schemaVersion"], m["mediaType"] = 2, media
	data, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	digest = "sha256:" + sha256Of(data).Value
	r.put(http.MethodPut, "/v2/os/image/manifests/"+digest, media, data)
	if tag != "" {
		r.put(http.MethodPut, "/v2/os/image/manifests/"+tag, media, data)
	}
	return digest
}

func (r *ociRegistry) artifact(tag string, data []byte) (digest string) {
	return r.manifest(tag, artifactOf(r.push(data)))
}

// artifactOf returns the manifest that the tool oras writes for one or more files.
func artifactOf(blobs ...string) map[string]any {
	var layers []any
	for _, digest := range blobs {
		layers = append(layers, map[string]any{"mediaType": "application/octet-stream", "digest": digest, "size": 1})
	}
	return map[string]any{
		"config": map[string]any{
			"mediaType": mediaEmpty,
			"digest":    "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "size": 2,
		},
		"layers": layers,
	}
}

func (r *ociRegistry) fetch(authorization string) Options {
	f := Options{Client: r.server.Client(), Header: http.Header{}}
	if authorization != "" {
		f.Header.Set("Authorization", authorization)
	}
	return f
}

// read finds an image and returns its content, and the stream that it was read from.
func (r *ociRegistry) read(f Options, reference string) ([]byte, *Stream, Artifact, error) {
	r.t.Helper()
	a, err := ResolveOCI(r.t.Context(), f, "oci://"+r.host()+reference, "amd64")
	if err != nil {
		return nil, nil, a, err
	}
	data, s, err := readStream(r.t, a.Fetch, a.URL)
	return data, s, a, err
}

// Without an artifact type, the type of the configuration counts (image specification 1.1, "Guidelines for Artifact
// Usage"). Clients of the specification 1.0, such as oras 1.0, write no other.
func TestOCIArtifactOfOldClient(t *testing.T) {
	image := imagetest.RandomBytes(7, mib)
	r := newRegistry(t, "")
	m := artifactOf(r.push(image))
	m["config"].(map[string]any)["mediaType"] = "application/vnd.unknown.config.v1+json"
	r.manifest("latest", m)
	if data, _, _, err := r.read(r.fetch(""), "/os/image"); err != nil || !bytes.Equal(data, image) {
		t.Errorf("got %d bytes and error %v, want the image", len(data), err)
	}
}

// readStream returns the content of a URL, and the stream that it was read from.
func readStream(t *testing.T, f Options, url URL) ([]byte, *Stream, error) {
	t.Helper()
	s, err := New(f, nil).OpenStream(t.Context(), url, nil)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	data, err := io.ReadAll(s)
	return data, s, err
}

func TestOCI(t *testing.T) {
	image := imagetest.RandomBytes(7, 3*mib)
	for _, tt := range []struct {
		name, door, authorization string
		fails                     string
		logins                    []string // Authorization headers that the token server received
	}{
		{name: "open"},
		{name: "open, credentials given", authorization: ociCredentials},
		{name: "token for anybody", door: "bearer", logins: []string{""}},
		{
			name: "token for credentials", door: "bearer", authorization: ociCredentials,
			logins: []string{ociCredentials},
		},
		{name: "token that came with the image", door: "bearer", authorization: "Bearer token-0"},
		{
			name: "another token than that which came with the image", door: "bearer", authorization: "Bearer old",
			logins: []string{""},
		},
		{name: "basic", door: "basic", authorization: ociCredentials},
		{name: "basic without credentials", door: "basic", fails: "401"},
		{name: "wrong credentials", door: "basic", authorization: "Basic d3Jvbmc=", fails: "401"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(t, tt.door)
			digest := r.artifact("latest", image)
			for n, reference := range []string{
				"/os/image", "/os/image:latest", "/os/image@" + digest, "/os/image:gone@" + digest,
			} {
				data, _, a, err := r.read(r.fetch(tt.authorization), reference)
				if tt.fails != "" {
					if !imagetest.IsA[*DownloadError](err) || !strings.Contains(err.Error(), tt.fails) {
						t.Fatalf("%s: got %v, want a DownloadError with %s", reference, err, tt.fails)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", reference, err)
				}
				if !bytes.Equal(data, image) || a.Checksum != sha256Of(image) {
					t.Errorf("%s: got %d bytes with the checksum %+v, want the image and its digest",
						reference, len(data), a.Checksum)
				}
				if n == 0 && !slices.Equal(r.basic, tt.logins) {
					t.Errorf("the server of tokens got %q, want %q", r.basic, tt.logins)
				}
				if tt.door == "bearer" && tt.authorization == "Bearer token-0" {
					break // the token is valid once
				}
			}
		})
	}
}

// In an index the machine's architecture counts, by either name; formats that are copied come first; artifacts must
// have one layer.
func TestOCIIndex(t *testing.T) {
	type entry struct {
		architecture, disktype, artifact string
		layers                           int // 0 means 1
		container                        bool
	}
	for _, tt := range []struct {
		name    string
		entries []entry
		want    int // the entry, -1 for none
	}{
		{"architecture", []entry{{architecture: "arm64"}, {architecture: "amd64"}}, 1},
		{"architecture by the kernel's name", []entry{{architecture: "aarch64"}, {architecture: "x86_64"}}, 1},
		{"for any", []entry{{architecture: "s390x"}, {}}, 1},
		{"formats", []entry{{disktype: "qemu"}, {disktype: "qcow2"}, {}, {disktype: "applehv"}, {disktype: "raw"}}, 4},
		{"no raw one", []entry{{}, {disktype: "qemu"}, {disktype: "qcow2"}}, 2},
		{"a raw one for others", []entry{
			{architecture: "arm64", disktype: "raw"}, {architecture: "amd64", disktype: "qcow2"},
		}, 1},
		{"formats nobody can write", []entry{{disktype: "hyperv"}, {disktype: "qemu"}}, 1},
		{"the first of equals", []entry{{disktype: "raw"}, {disktype: "raw"}}, 0},
		{"containers", []entry{{container: true}, {}}, 1},
		{"container with a format is an artifact", []entry{{container: true, disktype: "raw"}}, 0},
		{"artifact type in the index", []entry{{container: true, artifact: "application/x-disk"}}, 0},
		{"several layers", []entry{{disktype: "raw", layers: 2}, {disktype: "qcow2"}}, 1},
		{"containers only", []entry{{container: true}}, -1},
		{"others only", []entry{{architecture: "riscv64"}}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(t, "")
			var list []any
			var blobs []string
			for i, e := range tt.entries {
				blobs = append(blobs, r.push([]byte{byte(i)}))
				m := artifactOf(slices.Repeat(blobs[i:], max(e.layers, 1))...)
				// Otherwise equal manifests have the same digest.
				m["annotations"] = map[string]string{"entry": fmt.Sprint(i)}
				if e.container {
					m["config"] = map[string]any{
						"mediaType": "application/vnd.oci.image.config.v1+json", "digest": blobs[i], "size": 1,
					}
				}
				d := map[string]any{"mediaType": mediaManifest, "digest": r.manifest("", m), "size": 1}
				if e.architecture != "" {
					d["platform"] = map[string]string{"architecture": e.architecture, "os": "linux"}
				}
				if e.disktype != "" {
					d["annotations"] = map[string]string{"disktype": e.disktype}
				}
				if e.artifact != "" {
					d["artifactType"] = e.artifact
				}
				list = append(list, d)
			}
			r.manifest("latest", map[string]any{"manifests": list})
			got, err := ResolveOCI(t.Context(), r.fetch(""), "oci://"+r.host()+"/os/image", "amd64")
			if tt.want < 0 {
				if err == nil {
					t.Errorf("got %s, want an error", got.URL)
				}
				return
			}
			if want := r.server.URL + "/v2/os/image/blobs/" + blobs[tt.want]; err != nil || got.URL.String() != want {
				t.Errorf("got %s and %v, want %s", got.URL, err, want)
			}
		})
	}
}

// Credentials are sent to the registry and to the token server that it names, but not to the storage that it
// redirects to, nor to the token server that the storage names.
func TestOCIStorage(t *testing.T) {
	image := imagetest.RandomBytes(8, mib)
	var mu sync.Mutex
	var strangers []string
	refuse := false
	note := func(q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		strangers = append(strangers, q.Header.Get("Authorization"))
	}
	thief := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { note(q) }))
	t.Cleanup(thief.Close)
	storage := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		note(q)
		if refuse {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+thief.URL+`"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		imagetest.Content(image)(w, q)
	}))
	t.Cleanup(storage.Close)
	for _, door := range []string{"bearer", "basic"} {
		refuse = false
		r := newRegistry(t, door)
		r.artifact("latest", image)
		r.blob = func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, storage.URL+"/blob?signature=secret", http.StatusTemporaryRedirect)
		}
		if data, _, _, err := r.read(r.fetch(ociCredentials), "/os/image"); err != nil || !bytes.Equal(data, image) {
			t.Errorf("%s: got %d bytes and error %v, want the image", door, len(data), err)
		}
		refuse = true
		_, _, _, err := r.read(r.fetch(ociCredentials), "/os/image")
		if !imagetest.IsA[*DownloadError](err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want a DownloadError without the signature", door, err)
		}
	}
	if len(strangers) != 4 || strings.Join(strangers, "") != "" {
		t.Errorf("strangers were asked with %q, want four requests to the storage and no authorization", strangers)
	}
}

// A token that has expired when a transfer resumes is replaced. Options.Secret receives it before it is used.
func TestOCITokenExpires(t *testing.T) {
	image := imagetest.RandomBytes(9, 3*mib)
	for _, tt := range []struct{ door, authorization string }{
		{"bearer", ociCredentials}, {"bearer", ""}, {"harbor", ""},
	} {
		t.Run(tt.door+" "+tt.authorization, func(t *testing.T) {
			r := newRegistry(t, tt.door)
			r.artifact("latest", image)
			broken := false
			r.blob = func(w http.ResponseWriter, q *http.Request) {
				if broken {
					r.files.ServeHTTP(w, q)
					return
				}
				r.mu.Lock()
				broken = true
				r.issued++ // from now on another token is valid
				r.mu.Unlock()
				w.Header().Set("Accept-Ranges", "bytes")
				w.Header().Set("ETag", `"`+sha256Of(image).Value+`"`)
				imagetest.Truncated(image, 2*mib)(w, q)
			}
			var secrets redacted
			f := r.fetch(tt.authorization)
			f.Retries, f.Secrets = 2, &secrets
			data, stream, _, err := r.read(f, "/os/image")
			if err != nil || !bytes.Equal(data, image) || stream.Resumed != 1 {
				t.Fatalf("got %d bytes and error %v, want the image in two connections", len(data), err)
			}
			if want := []string{"token-1", "token-3"}; !slices.Equal(secrets, want) {
				t.Errorf("got the secrets %q, want %q", secrets, want)
			}
		})
	}
}

// Invalid responses of registries, and demands that must not be fulfilled.
func TestOCIRefuses(t *testing.T) {
	image := imagetest.RandomBytes(10, mib)
	other := "sha256:" + sha256Of([]byte("other")).Value
	layer := `{"digest": "` + other + `"}`
	two := layer + "," + layer
	for _, tt := range []struct {
		name, reference string
		serve           func(r *ociRegistry) http.HandlerFunc
		want            string
	}{
		{"other manifest than the one asked for", "/os/image@" + other, func(r *ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"layers": [{"digest": "` + other + `"}]}`))
		}, "has the digest"},
		{
			"no JSON", "/os/image",
			func(*ociRegistry) http.HandlerFunc { return imagetest.WithoutRanges([]byte("<html>")) }, "cannot be read",
		},
		{
			"endless", "/os/image", func(*ociRegistry) http.HandlerFunc { return imagetest.Endless(make([]byte, mib)) },
			"more than 4194304 bytes",
		},
		{"not there", "/os/image:gone", nil, "404"},
		{"digest that leads elsewhere", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"artifactType": "a", "layers": [{"digest": "../../other/blobs/` +
				other + `"}]}`))
		}, "is not a sha256 or sha512 digest"},
		{"digest in an index that leads elsewhere", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"manifests": [{"digest": "x?y"}]}`))
		}, "is not a sha256 or sha512 digest"},
		{"layer without a digest", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"artifactType": "a", "layers": [{"size": 1}]}`))
		}, "no digest"},
		{"entry without a digest", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"manifests": [{"size": 1}]}`))
		}, "no disk image for amd64"},
		{"index without manifests", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"mediaType": "` + mediaIndex + `", "manifests": []}`))
		}, "it is an index without manifests"},
		{"index for others", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"manifests": [{"digest": "` + other +
				`", "platform": {"architecture": "arm64"}, "annotations": {"disktype": "raw"}}]}`))
		}, `no disk image for amd64, only "arm64" with disktype "raw"`},
		{"container", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(
				`{"config": {"mediaType": "application/vnd.oci.image.config.v1+json"}, "layers": [` + layer + `]}`))
		}, "it is a container image"},
		{"artifact of old clients with two layers", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(
				`{"config": {"mediaType": "application/vnd.unknown.config.v1+json"}, "layers": [` + two + `]}`))
		}, `artifact of type "application/vnd.unknown.config.v1+json" with 2 layers, want 1`},
		{"no type", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return imagetest.WithoutRanges([]byte(`{"layers": [{"digest": "` + other + `"}]}`))
		}, "states neither an artifact type"},
		{"token by http", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://192.0.2.1/token"`)
				http.Error(w, "no", http.StatusUnauthorized)
			}
		}, "no https URL"},
		{"no token in the answer", "/os/image", func(r *ociRegistry) http.HandlerFunc {
			return func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path == "/token" {
					fmt.Fprint(w, `{"token": "a\r\nb"}`) //nolint:errcheck // the client may disconnect
					return
				}
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+r.server.URL+`/token"`)
				http.Error(w, "no", http.StatusUnauthorized)
			}
		}, "has none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(t, "")
			r.artifact("latest", image)
			if tt.serve != nil {
				r.files = tt.serve(r)
			}
			_, err := ResolveOCI(t.Context(), r.fetch(ociCredentials), "oci://"+r.host()+tt.reference, "amd64")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
	t.Run("other blob than the manifest says", func(t *testing.T) {
		r := newRegistry(t, "")
		r.artifact("latest", image)
		r.blob = imagetest.WithoutRanges(make([]byte, mib))
		data, _, a, err := r.read(r.fetch(""), "/os/image")
		if err != nil {
			t.Fatal(err)
		}
		h, err := a.Checksum.Hash()
		if err != nil {
			t.Fatal(err)
		}
		h.Write(data) //nolint:errcheck // a hash never fails
		if err := a.Checksum.Verify(h, a.URL.String()); !imagetest.IsA[*checksum.MismatchError](err) {
			t.Errorf("got %v, want a ChecksumError", err)
		}
	})
}

func TestReference(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for text, want := range map[string]ociReference{
		"oci://host/a":                       {"host", "a", "", ""},
		"OCI://host:5000/a/b-c_d.e/f__g:1.0": {"host:5000", "a/b-c_d.e/f__g", "1.0", ""},
		"oci://[2001:db8::1]:5000/a:T":       {"[2001:db8::1]:5000", "a", "T", ""},
		"oci://host/a@" + digest:             {"host", "a", "", digest},
		"oci://host/a:t@" + digest:           {"host", "a", "t", digest},
	} {
		if got, err := parseReference(text); err != nil || got != want {
			t.Errorf("%s: got %+v and %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "oci://", "oci:///a", "oci://host", "oci://host/", "oci://host/A", "oci://host/a/", "oci://host/a//b",
		"oci://host/a/../b", "oci://host/a:", "oci://host/a:-t", "oci://host/a@", "oci://host/a@sha256:0a",
		"oci://host/a@md5:" + digest[39:], "oci://user:secret@host/a", "oci://host/a?secret", "oci://host/a#b",
		"http://host/a", "oci://host/a%2fb%3f", "oci://host/a:t:u", "oci://ho st/a",
	} {
		if got, err := parseReference(text); err == nil {
			t.Errorf("%s: got %+v, want an error", text, got)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// Docker's registry has other names than its requests, in any letter case.
func TestContainerReference(t *testing.T) {
	for text, want := range map[string]ociReference{
		"docker.io/debian:13":      {"registry-1.docker.io", "library/debian", "13", ""},
		"Index.Docker.io/a/b":      {"registry-1.docker.io", "a/b", "", ""},
		"Registry.example:5000/os": {"Registry.example:5000", "os", "", ""},
	} {
		if got, err := parseContainerReference(text); err != nil || got != want {
			t.Errorf("%s: got %+v and %v, want %+v", text, got, err, want)
		}
	}
}

var digestForm = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// A response of a registry never leads to a path outside the repository.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"artifactType": "a", "layers": [{"digest": "sha256:` + strings.Repeat("0a", 32) + `"}]}`))
	f.Add([]byte(`{"manifests": [{"digest": "x", "platform": {"architecture": "aarch64"}, ` +
		`"annotations": {"disktype": "qemu"}}, {}]}`))
	f.Add([]byte(`{"config": {"mediaType": "` + mediaEmpty + `"}, "annotations": {"disktype": "raw"}, "layers": []}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, list, err := parseManifest(text, "latest")
		if err != nil {
			return
		}
		for _, d := range candidates(list, "arm64") {
			if d.Platform == nil {
				continue
			}
			if a := goArchitecture(d.Platform.Architecture); a != "" && a != "arm64" {
				t.Errorf("took one for %s", a)
			}
		}
		if digest, err := blobOf(m, m.Annotations["disktype"]); err == nil && !digestForm.MatchString(digest.String()) {
			t.Errorf("took the digest %q", digest)
		}
	})
}

func FuzzReference(f *testing.F) {
	f.Add("oci://host:5000/a/b:t@sha256:" + strings.Repeat("0a", 32))
	f.Add("oci://user@host/%2e%2e")
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := parseReference(text)
		if err != nil {
			return
		}
		u := ref.url("manifests", ref.version()).parsed
		if u.Host != ref.host || u.RawQuery != "" || u.Fragment != "" || u.User != nil ||
			strings.Contains(u.Path, "..") && !strings.Contains(ref.tag, "..") {
			t.Errorf("%q leads to %s", text, u)
		}
	})
}

// redacted collects secrets.
type redacted []string

func (r *redacted) Redact(secret string) { *r = append(*r, secret) }
