package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/google/go-cmp/cmp"
	"github.com/ulikunitz/xz"

	"ironroot/internal/test/testenv"
)

// site is a Debian archive with its security archive.
type site struct {
	*httptest.Server
	t       *testing.T
	key     *openpgp.Entity
	keyring string

	mu       sync.Mutex
	files    map[string][]byte
	packages map[string][]Package // by suite
	requests []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	key, err := openpgp.NewEntity("archive", "", "archive@example.org", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{
		t: t, key: key, keyring: filepath.Join(t.TempDir(), "keys"), files: map[string][]byte{},
		packages: map[string][]Package{},
	}
	var public bytes.Buffer
	if err := key.Serialize(&public); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.keyring, public.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, r.URL.Path)
		data, ok := s.files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(s.Close)
	return s
}

// add publishes a package with the given dependencies and returns it.
func (s *site) add(archive, suite, name, version, depends string) Package {
	s.t.Helper()
	testenv.Programs(s.t, "dpkg-deb")
	tree := s.t.TempDir()
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: A <a@example.org>\n"+
		"%sDescription: none\n", name, version, depends)
	if err := os.Mkdir(filepath.Join(tree, "DEBIAN"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o600); err != nil {
		s.t.Fatal(err)
	}
	file := fmt.Sprintf("%s_%s_amd64.deb", name, version)
	deb := filepath.Join(s.t.TempDir(), file)
	testenv.Run(s.t, "dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, deb)
	data, err := os.ReadFile(deb)
	if err != nil {
		s.t.Fatal(err)
	}
	p := Package{
		Name: name, Arch: "amd64", Version: version, SHA256: sumOf(data), Origin: archive, Path: "pool/" + file,
	}
	p.Depends = parseDepends(depends)
	s.files["/"+archive+"/"+p.Path] = data
	s.packages[suite] = append(s.packages[suite], p)
	return p
}

// publish writes the index of a suite.
func (s *site) publish(archive, suite string) {
	s.t.Helper()
	var index, packed, signed bytes.Buffer
	for _, p := range s.packages[suite] {
		fmt.Fprintf(&index, "Package: %s\nVersion: %s\nArchitecture: %s\nFilename: %s\nSHA256: %s\n",
			p.Name, p.Version, p.Arch, p.Path, p.SHA256)
		if len(p.Depends) > 0 {
			fmt.Fprintf(&index, "Depends: %s\n", strings.Join(p.Depends, ", "))
		}
		index.WriteString("\n")
	}
	w, err := xz.NewWriter(&packed)
	if err != nil {
		s.t.Fatal(err)
	}
	_, _ = w.Write(index.Bytes())
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
	text := fmt.Sprintf("Suite: stable\nCodename: %s\nMD5Sum:\n 00 1 main/binary-amd64/Packages\nSHA256:\n"+
		" %s %d main/binary-amd64/Packages\n %s %d main/binary-amd64/Packages.xz\n",
		suite, sumOf(index.Bytes()), index.Len(), sumOf(packed.Bytes()), packed.Len())
	encoder, err := clearsign.Encode(&signed, s.key.PrivateKey, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	_, _ = encoder.Write([]byte(text))
	if err := encoder.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.files["/"+archive+"/dists/"+suite+"/InRelease"] = signed.Bytes()
	s.files["/"+archive+"/dists/"+suite+"/main/binary-amd64/Packages.xz"] = packed.Bytes()
}

func (s *site) open(change func(*Options)) *Archive {
	s.t.Helper()
	o := Options{
		Suite: "trixie", Mirror: s.URL + "/debian", Keyring: s.keyring, CacheDir: s.t.TempDir(), Lock: Lock{},
		Progress: s.t.Output(),
	}
	if change != nil {
		change(&o)
	}
	a, err := Open(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// kernels returns a site with a kernel and a newer one in the security archive, and locks of the packages of both.
func kernels(t *testing.T) (s *site, older, newest Lock) {
	s = newSite(t)
	for _, v := range []struct {
		archive, suite, version string
		lock                    *Lock
	}{{"debian", "trixie", "6.9-1", &older}, {"debian-security", "trixie-security", "6.12-1", &newest}} {
		meta := s.add(v.archive, v.suite, "linux-image-amd64", v.version, "Depends: linux-image-"+v.version+"\n")
		image := s.add(v.archive, v.suite, "linux-image-"+v.version, v.version, "")
		*v.lock = Lock{{"trixie", meta}, {"trixie", image}}
		s.publish(v.archive, v.suite)
	}
	return s, older, newest
}

func fetchKernel(t *testing.T, a *Archive) ([]string, error) {
	t.Helper()
	debs, err := a.FetchAll(context.Background(), "linux-image-amd64:amd64",
		func(name string) bool { return strings.HasPrefix(name, "linux-image-") })
	for i, deb := range debs {
		debs[i] = filepath.Base(deb)
	}
	return debs, err
}

func TestFetchNewest(t *testing.T) {
	s, _, _ := kernels(t)
	got, err := fetchKernel(t, s.open(nil))
	if err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff([]string{"linux-image-amd64_6.12-1_amd64.deb", "linux-image-6.12-1_6.12-1_amd64.deb"}, got)
	if diff != "" {
		t.Error(diff)
	}
	got, err = fetchKernel(t, s.open(func(o *Options) { o.Security = NoMirror }))
	if err != nil || got[0] != "linux-image-amd64_6.9-1_amd64.deb" {
		t.Errorf("without security updates: got %v, %v, want version 6.9-1", got, err)
	}
}

// A pinned version is fetched by its path, without an index.
func TestFetchPinned(t *testing.T) {
	s, older, _ := kernels(t)
	got, err := fetchKernel(t, s.open(func(o *Options) { o.Lock, o.Keyring = older, "/nonexistent" }))
	if err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff([]string{"linux-image-amd64_6.9-1_amd64.deb", "linux-image-6.9-1_6.9-1_amd64.deb"}, got)
	if diff != "" {
		t.Error(diff)
	}
	for _, path := range s.requests {
		if !strings.HasSuffix(path, ".deb") {
			t.Errorf("requested %s, want packages only", path)
		}
	}
}

// If one package of a pinned kernel is gone, all packages of the kernel are the newest ones, with a message.
func TestPinnedVersionGone(t *testing.T) {
	s, older, _ := kernels(t)
	delete(s.files, "/debian/"+older[1].Path)
	var said bytes.Buffer
	got, err := fetchKernel(t, s.open(func(o *Options) {
		o.Lock, o.Progress = older, &said
	}))
	if err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff([]string{"linux-image-amd64_6.12-1_amd64.deb", "linux-image-6.12-1_6.12-1_amd64.deb"}, got)
	if diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{
		"linux-image-6.9-1:amd64, version 6.9-1 of the lock file", "taking the newest version",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("messages lack %q:\n%s", want, said.String())
		}
	}
	_, err = fetchKernel(t, s.open(func(o *Options) { o.Lock, o.Locked = older, true }))
	if !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "6.9-1") {
		t.Errorf("locked: got error %v, want one that names the version", err)
	}
}

func TestNotPinned(t *testing.T) {
	s, _, _ := kernels(t)
	_, err := fetchKernel(t, s.open(func(o *Options) { o.Locked = true }))
	if !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "not in the lock file") {
		t.Errorf("got error %v, want that the package is not in the lock file", err)
	}
}

func TestOffline(t *testing.T) {
	s, older, newest := kernels(t)
	cache := t.TempDir()
	if _, err := fetchKernel(t, s.open(func(o *Options) { o.CacheDir = cache })); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for name, lock := range map[string]Lock{"pinned": newest, "not pinned": {}, "another version pinned": older} {
		got, err := fetchKernel(t, s.open(func(o *Options) { o.CacheDir, o.Offline, o.Lock = cache, true, lock }))
		if err != nil || got[1] != "linux-image-6.12-1_6.12-1_amd64.deb" {
			t.Errorf("%s: got %v, %v, want version 6.12-1 from the cache", name, got, err)
		}
	}
	if _, err := fetchKernel(t, s.open(func(o *Options) {
		o.CacheDir, o.Offline, o.Lock, o.Locked = cache, true, older, true
	})); !errors.Is(err, ErrGone) {
		t.Errorf("locked to a version that is not in the cache: got %v, want %v", err, ErrGone)
	}
	if _, err := fetchKernel(t, s.open(func(o *Options) { o.Offline = true })); err == nil ||
		!strings.Contains(err.Error(), "--offline") {
		t.Errorf("empty cache: got %v, want an error that names --offline", err)
	}
}

// Indexes of another signer or suite and altered content are rejected.
func TestVerification(t *testing.T) {
	other := newSite(t)
	for name, test := range map[string]struct {
		change func(*site)
		want   string
	}{
		"another key": {func(s *site) { s.key = other.key; s.publish("debian", "trixie") }, "signature"},
		"altered InRelease": {func(s *site) {
			const path = "/debian/dists/trixie/InRelease"
			s.files[path] = bytes.Replace(s.files[path], []byte("Suite: stable"), []byte("Suite: static"), 1)
		}, "signature"},
		"unsigned InRelease": {
			func(s *site) { s.files["/debian/dists/trixie/InRelease"] = []byte("Codename: trixie\n") },
			"not a signed text",
		},
		"another suite": {func(s *site) {
			s.packages["sid"] = s.packages["trixie"]
			s.publish("debian", "sid")
			s.files["/debian/dists/trixie/InRelease"] = s.files["/debian/dists/sid/InRelease"]
		}, `want "trixie"`},
		"altered index": {func(s *site) {
			s.files["/debian/dists/trixie/main/binary-amd64/Packages.xz"] = []byte("x")
		}, "Packages.xz: got SHA-256"},
		"altered package": {func(s *site) {
			for path := range s.files {
				if strings.HasSuffix(path, ".deb") {
					s.files[path] = []byte("x")
				}
			}
		}, "got SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := kernels(t)
			test.change(s)
			got, err := fetchKernel(t, s.open(func(o *Options) { o.Security = NoMirror }))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want an error with %q", got, err, test.want)
			}
		})
	}
}

// A file in the cache is used only if it is the pinned one.
func TestDamagedCache(t *testing.T) {
	s, _, newest := kernels(t)
	cache := t.TempDir()
	a := s.open(func(o *Options) { o.CacheDir, o.Lock = cache, newest })
	deb, err := a.Fetch(context.Background(), "linux-image-amd64:amd64")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(deb, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Fetch(context.Background(), "linux-image-amd64:amd64"); err != nil {
		t.Fatal(err)
	}
	if sum, err := sumFile(deb); err != nil || sum != newest[0].SHA256 {
		t.Errorf("got SHA-256 %s, %v, want %s", sum, err, newest[0].SHA256)
	}
}

func TestUpdate(t *testing.T) {
	s, older, newest := kernels(t)
	bookworm := older[0]
	bookworm.Suite = "bookworm"
	a := s.open(func(o *Options) { o.Lock = append(Lock{bookworm}, older...) })
	got, err := a.Update(context.Background(), []string{"linux-image-amd64:amd64"},
		func(name string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	text := got.String()
	if got, err = ParseLock([]byte(text)); err != nil {
		t.Fatal(err)
	}
	want := Lock{bookworm, newest[1], newest[0]}
	for i := range want {
		want[i].Depends = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSecurityMirror(t *testing.T) {
	for _, test := range [][3]string{
		{"trixie", DefaultMirror, "https://deb.debian.org/debian-security"},
		{
			"trixie", "https://snapshot.debian.org/archive/debian/20260901T000000Z",
			"https://snapshot.debian.org/archive/debian-security/20260901T000000Z",
		},
		{"sid", DefaultMirror, NoMirror},
		{"trixie", "https://mirror.example.org/ubuntu", NoMirror},
	} {
		if got := securityMirror(test[0], test[1]); got != test[2] {
			t.Errorf("%s of %s: got %s, want %s", test[0], test[1], got, test[2])
		}
	}
}

func TestOpenRejects(t *testing.T) {
	for _, o := range []Options{{Suite: "../x"}, {Mirror: "ftp://x"}, {Mirror: "x"}, {Security: ":"}} {
		o.CacheDir = t.TempDir()
		if _, err := Open(o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

func TestParseProxies(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"http='http://proxy:3142/'\n":           "http://proxy:3142/",
		"http='http://p/'\nhttps='http://q/'\n": "http://q/",
		"http='http://p/'\nhttps='DIRECT'\n":    "",
	} {
		got := ""
		if u := parseProxies(text)["https"]; u != nil {
			got = u.String()
		}
		if got != want {
			t.Errorf("%q: got %q for https, want %q", text, got, want)
		}
	}
}

func TestParseLockRejects(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for name, text := range map[string]string{
		"fields":  "trixie a amd64 1 " + sum + " debian\n",
		"sum":     "trixie a amd64 1 aa debian pool/a.deb\n",
		"path":    "trixie a amd64 1 " + sum + " debian ../a.deb\n",
		"archive": "trixie a amd64 1 " + sum + " ubuntu pool/a.deb\n",
	} {
		if _, err := ParseLock([]byte(text)); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// The newest package in the cache is the one of the architecture with the greatest version. Versions are not compared
// as text.
func TestNewestCached(t *testing.T) {
	a, err := Open(Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.packageDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"a_9_amd64.deb", "a_10_amd64.deb", "a_11_arm64.deb", "a-b_12_arm64.deb", "b_1_all.deb",
	} {
		if err := os.WriteFile(filepath.Join(a.packageDir(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pkg, want := range map[string]string{
		"a:amd64": "a_10_amd64.deb", "a:arm64": "a_11_arm64.deb", "a:riscv64": "", "b:arm64": "b_1_all.deb",
		"c:amd64": "",
	} {
		path, ok := a.newestCached(splitName(pkg))
		if ok != (want != "") || ok && filepath.Base(path) != want {
			t.Errorf("%s: got %q, %v, want %q", pkg, path, ok, want)
		}
	}
}

func FuzzParseIndexes(f *testing.F) {
	f.Add("Suite: stable\nCodename: trixie\nValid-Until: Sat, 12 Sep 2026 07:55:41 UTC\nSHA256:\n aa 1 main/x\n")
	f.Add("Package: a\nVersion: 1\nArchitecture: all\nFilename: pool/a.deb\nSHA256: " + strings.Repeat("a", 64) +
		"\nDepends: b (>= 1), c | d\n")
	f.Fuzz(func(t *testing.T, text string) {
		parseRelease(text)
		for _, p := range parsePackages(text) {
			if err := p.check(); err != nil {
				t.Error(err)
			}
		}
	})
}

func FuzzParseLock(f *testing.F) {
	f.Add(packagesLock)
	f.Fuzz(func(t *testing.T, text []byte) {
		lock, err := ParseLock(text)
		if err != nil {
			return
		}
		again, err := ParseLock([]byte(lock.String()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lock, again); diff != "" {
			t.Error(diff)
		}
	})
}
