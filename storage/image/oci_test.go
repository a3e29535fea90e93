package image

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
)

// ociRegistry is go-containerregistry's registry in memory, with a door of our own before it and a server for tokens beside it.
type ociRegistry struct {
	t      *testing.T
	server *httptest.Server
	tokens *httptest.Server
	files  http.Handler

	mu     sync.Mutex
	door   string // "bearer", "basic", "" is open
	issued int    // tokens; the last one is good
	basic  []string
	seen   []*http.Request
	blob   http.HandlerFunc // in the place of the registry, when set
}

const ociCredentials = "Basic dXNlcjpwYXNzd29yZA==" // user:password

func newRegistry(t *testing.T, door string) *ociRegistry {
	t.Helper()
	r := &ociRegistry{t: t, door: door, files: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewTLSServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.server.Close)
	r.tokens = httptest.NewTLSServer(http.HandlerFunc(r.token))
	t.Cleanup(r.tokens.Close)
	return r
}

func (r *ociRegistry) host() string { return strings.TrimPrefix(r.server.URL, "https://") }

func (r *ociRegistry) good() string { return fmt.Sprintf("token-%d", r.issued) }

// token is the answer of the server that the registry names; it takes anybody, or who has the credentials.
func (r *ociRegistry) token(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.basic = append(r.basic, q.Header.Get("Authorization"))
	if q.URL.Query().Get("scope") != "repository:os/image:pull" || q.URL.Query().Get("service") != "our registry" || q.URL.Query().Get("x") != "1" {
		http.Error(w, "what for", http.StatusBadRequest)
		return
	}
	r.issued++
	fmt.Fprintf(w, `{"access_token": %q, "expires_in": 60}`, r.good()) //nolint:errcheck // the client may go
}

func (r *ociRegistry) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.seen = append(r.seen, q)
	want, blob := map[string]string{"bearer": "Bearer " + r.good(), "basic": ociCredentials}[r.door], r.blob
	r.mu.Unlock()
	if got := q.Header.Get("Authorization"); r.door != "" && got != want {
		w.Header().Add("WWW-Authenticate", "Negotiate")
		challenge := `Basic realm="registry"`
		if r.door == "bearer" {
			challenge = fmt.Sprintf(`Bearer realm="%s/token?x=1", service="our registry",error="insufficient_scope"`, r.tokens.URL)
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

// put uploads straight into the registry, past its door.
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

// manifest uploads a manifest or an index and returns its digest. Where it has a tag it goes by that too.
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

// artifactOf is the manifest that the tool oras writes for one file, or for several.
func artifactOf(blobs ...string) map[string]any {
	var layers []any
	for _, digest := range blobs {
		layers = append(layers, map[string]any{"mediaType": "application/octet-stream", "digest": digest, "size": 1})
	}
	return map[string]any{
		"config": map[string]any{"mediaType": mediaEmpty, "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "size": 2},
		"layers": layers,
	}
}

func (r *ociRegistry) fetch(authorization string) Fetch {
	f := Fetch{Client: r.server.Client(), Header: http.Header{}}
	if authorization != "" {
		f.Header.Set("Authorization", authorization)
	}
	return f
}

// write finds an image and writes it to a disk, which it returns with the report.
func (r *ociRegistry) write(f Fetch, reference string, size int) ([]byte, Report, error) {
	r.t.Helper()
	a, err := ResolveOCI(r.t.Context(), f, "oci://"+r.host()+reference, "amd64")
	if err != nil {
		return nil, Report{}, err
	}
	disk := usedDisk(r.t, size)
	report, err := Write(r.t.Context(), disk, Source{URLs: []string{a.URL}, Format: "raw", Checksum: a.Checksum, Fetch: a.Fetch}, Options{})
	return mustRead(r.t, disk), report, err
}

func TestOCI(t *testing.T) {
	image := randomBytes(7, 3*mib)
	for _, tt := range []struct {
		name, door, authorization string
		fails                     string
		logins                    []string // what the server of tokens got as Authorization
	}{
		{name: "open"},
		{name: "open, credentials given", authorization: ociCredentials},
		{name: "token for anybody", door: "bearer", logins: []string{""}},
		{name: "token for credentials", door: "bearer", authorization: ociCredentials, logins: []string{ociCredentials}},
		{name: "token that came with the image", door: "bearer", authorization: "Bearer token-0"},
		{name: "another token than that which came with the image", door: "bearer", authorization: "Bearer old", logins: []string{""}},
		{name: "basic", door: "basic", authorization: ociCredentials},
		{name: "basic without credentials", door: "basic", fails: "401"},
		{name: "wrong credentials", door: "basic", authorization: "Basic d3Jvbmc=", fails: "401"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(t, tt.door)
			digest := r.artifact("latest", image)
			for n, reference := range []string{"/os/image", "/os/image:latest", "/os/image@" + digest, "/os/image:gone@" + digest} {
				disk, report, err := r.write(r.fetch(tt.authorization), reference, 4*mib)
				if tt.fails != "" {
					if !isA[*DownloadError](err) || !strings.Contains(err.Error(), tt.fails) {
						t.Fatalf("%s: got %v, want a DownloadError with %s", reference, err, tt.fails)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", reference, err)
				}
				if !bytes.Equal(disk[:len(image)], image) || report.Checksum != sha256Of(image) {
					t.Errorf("%s: the disk does not hold the image, or its digest was not what was checked: %+v", reference, report.Checksum)
				}
				if n == 0 && !slices.Equal(r.basic, tt.logins) {
					t.Errorf("the server of tokens got %q, want %q", r.basic, tt.logins)
				}
				if tt.door == "bearer" && tt.authorization == "Bearer token-0" {
					break // the token is good once
				}
			}
		})
	}
}

// What of an index is taken: the machine's architecture by either name, formats that can be written as they arrive first,
// artifacts of one layer only.
func TestOCIIndex(t *testing.T) {
	type entry struct {
		architecture, disktype, artifact string
		layers                           int // 0 is one
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
		{"a raw one for others", []entry{{architecture: "arm64", disktype: "raw"}, {architecture: "amd64", disktype: "qcow2"}}, 1},
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
				m["annotations"] = map[string]string{"entry": fmt.Sprint(i)} // or equal ones would have one digest
				if e.container {
					m["config"] = map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": blobs[i], "size": 1}
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
			if want := r.server.URL + "/v2/os/image/blobs/" + blobs[tt.want]; err != nil || got.URL != want {
				t.Errorf("got %s and %v, want %s", got.URL, err, want)
			}
		})
	}
}

// The credentials are for the registry and for whom it names: not for the storage that it redirects to, and not for whom
// that storage names.
func TestOCIStorage(t *testing.T) {
	image := randomBytes(8, mib)
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
		content(image)(w, q)
	}))
	t.Cleanup(storage.Close)
	for _, door := range []string{"bearer", "basic"} {
		refuse = false
		r := newRegistry(t, door)
		r.artifact("latest", image)
		r.blob = func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, storage.URL+"/blob?signature=secret", http.StatusTemporaryRedirect)
		}
		if disk, _, err := r.write(r.fetch(ociCredentials), "/os/image", 2*mib); err != nil || !bytes.Equal(disk[:mib], image) {
			t.Errorf("%s: the disk does not hold the image: %v", door, err)
		}
		refuse = true
		_, _, err := r.write(r.fetch(ociCredentials), "/os/image", 2*mib)
		if !isA[*DownloadError](err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want a DownloadError without the signature", door, err)
		}
	}
	if len(strangers) != 4 || strings.Join(strangers, "") != "" {
		t.Errorf("strangers were asked with %q, want four requests to the storage and no authorization", strangers)
	}
}

// A token that has expired when a broken transfer goes on is replaced, and told of before it is used.
func TestOCITokenExpires(t *testing.T) {
	image := randomBytes(9, 3*mib)
	r := newRegistry(t, "bearer")
	r.artifact("latest", image)
	broken := false
	r.blob = func(w http.ResponseWriter, q *http.Request) {
		if broken {
			r.files.ServeHTTP(w, q)
			return
		}
		r.mu.Lock()
		broken = true
		r.issued++ // another token is good from now on
		r.mu.Unlock()
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("ETag", `"`+sha256Of(image).Value+`"`)
		truncated(image, 2*mib)(w, q)
	}
	var told []string
	f := r.fetch(ociCredentials)
	f.Retries, f.Secret = 2, func(token string) { told = append(told, token) }
	disk, report, err := r.write(f, "/os/image", 4*mib)
	if err != nil || !bytes.Equal(disk[:len(image)], image) {
		t.Fatalf("the disk does not hold the image: %v", err)
	}
	if want := []string{"token-1", "token-3"}; !slices.Equal(told, want) {
		t.Errorf("told of the tokens %q, want %q", told, want)
	}
	t.Logf("%d connections went on where another had broken off", report.Resumed)
}

// Registries that lie, or ask for what they must not get.
func TestOCIRefuses(t *testing.T) {
	image := randomBytes(10, mib)
	other := "sha256:" + sha256Of([]byte("other")).Value
	for _, tt := range []struct {
		name, reference string
		serve           func(r *ociRegistry) http.HandlerFunc
		want            string
	}{
		{"other manifest than the one asked for", "/os/image@" + other, func(r *ociRegistry) http.HandlerFunc {
			return whole([]byte(`{"layers": [{"digest": "` + other + `"}]}`))
		}, "has the digest"},
		{"no JSON", "/os/image", func(*ociRegistry) http.HandlerFunc { return whole([]byte("<html>")) }, "cannot be read"},
		{"endless", "/os/image", func(*ociRegistry) http.HandlerFunc { return endless(make([]byte, mib)) }, "more than 4194304 bytes"},
		{"not there", "/os/image:gone", nil, "404"},
		{"digest that leads elsewhere", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return whole([]byte(`{"artifactType": "a", "layers": [{"digest": "../../other/blobs/` + other + `"}]}`))
		}, "is no sha256 or sha512 digest"},
		{"digest in an index that leads elsewhere", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return whole([]byte(`{"manifests": [{"digest": "x?y"}]}`))
		}, "is no sha256 or sha512 digest"},
		{"layer without a digest", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return whole([]byte(`{"artifactType": "a", "layers": [{"size": 1}]}`))
		}, "no digest"},
		{"entry without a digest", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return whole([]byte(`{"manifests": [{"size": 1}]}`))
		}, "no disk image for amd64"},
		{"token by http", "/os/image", func(*ociRegistry) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://192.0.2.1/token"`)
				http.Error(w, "no", http.StatusUnauthorized)
			}
		}, "no https URL"},
		{"no token in the answer", "/os/image", func(r *ociRegistry) http.HandlerFunc {
			return func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path == "/token" {
					fmt.Fprint(w, `{"token": "a\r\nb"}`) //nolint:errcheck // the client may go
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
		r.blob = whole(make([]byte, mib))
		if _, _, err := r.write(r.fetch(""), "/os/image", 2*mib); !isA[*ChecksumError](err) {
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
		"", "oci://", "oci:///a", "oci://host", "oci://host/", "oci://host/A", "oci://host/a/", "oci://host/a//b", "oci://host/a/../b",
		"oci://host/a:", "oci://host/a:-t", "oci://host/a@", "oci://host/a@sha256:0a", "oci://host/a@md5:" + digest[39:], "oci://user:secret@host/a",
		"oci://host/a?secret", "oci://host/a#b", "http://host/a", "oci://host/a%2fb%3f", "oci://host/a:t:u", "oci://ho st/a",
	} {
		if got, err := parseReference(text); err == nil {
			t.Errorf("%s: got %+v, want an error", text, got)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

var digestForm = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// What a registry says never leads to another path than one of the repository's.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"artifactType": "a", "layers": [{"digest": "sha256:` + strings.Repeat("0a", 32) + `"}]}`))
	f.Add([]byte(`{"manifests": [{"digest": "x", "platform": {"architecture": "aarch64"}, "annotations": {"disktype": "qemu"}}, {}]}`))
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
		u, err := parseURL(ref.url("manifests", ref.what()))
		if err != nil {
			return // a host that is none
		}
		if u.Host != ref.host || u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.Contains(u.Path, "..") && !strings.Contains(ref.tag, "..") {
			t.Errorf("%q leads to %s", text, u)
		}
	})
}
