package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ironroot/internal/bounded"
	"ironroot/internal/pause"
)

const (
	attempts      = 3                // of a request that fails for another reason than a missing file
	retryDelay    = 2 * time.Second  // between attempts
	headerTimeout = 60 * time.Second // from a request to the header of its response
)

// newClient returns a client for http, https and file URLs. The proxy is the one of the environment, otherwise apt's.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = headerTimeout
	transport.RegisterProtocol("file", http.NewFileTransport(http.Dir("/")))
	apt := sync.OnceValue(aptProxies)
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		if proxy, err := http.ProxyFromEnvironment(r); proxy != nil || err != nil || proxyInEnvironment() {
			return proxy, err
		}
		return apt()[r.URL.Scheme], nil
	}
	return &http.Client{Transport: transport}
}

// proxyInEnvironment reports whether the environment configures a proxy. If it does, requests that NO_PROXY exempts do
// not use apt's proxy either.
func proxyInEnvironment() bool {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// aptProxies returns the proxies that apt is configured to use, by scheme. Without apt there are none.
func aptProxies() map[string]*url.URL {
	out, err := exec.CommandContext(context.Background(), "apt-config", "shell", "http", "Acquire::http::Proxy",
		"https", "Acquire::https::Proxy").Output()
	if err != nil {
		return nil
	}
	return parseProxies(string(out))
}

// parseProxies reads lines of the form http='URL'. apt uses its http proxy for https too.
func parseProxies(text string) map[string]*url.URL {
	proxies := map[string]*url.URL{}
	for line := range strings.Lines(text) {
		scheme, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, "'")
		u, err := url.Parse(value)
		if value == "" || err != nil || u.Host == "" {
			proxies[scheme] = nil // "DIRECT"
			continue
		}
		proxies[scheme] = u
	}
	if _, ok := proxies["https"]; !ok {
		proxies["https"] = proxies["http"]
	}
	return proxies
}

// open requests a file. The error wraps ErrGone if the server does not have it.
func (a *Archive) open(ctx context.Context, address string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	err = fmt.Errorf("get %s: %s", request.URL.Redacted(), response.Status)
	if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone {
		err = fmt.Errorf("%w: %w", err, ErrGone)
	}
	return nil, errors.Join(err, response.Body.Close())
}

// retry calls f until it succeeds, the file is missing, or the attempts are used up.
func (a *Archive) retry(ctx context.Context, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || errors.Is(err, ErrGone) || ctx.Err() != nil {
			return err
		}
		if attempt == attempts {
			return fmt.Errorf("%w\nwithout a network: --offline builds from the cache, --mirror names another archive",
				err)
		}
		a.say("%v: trying again", err)
		if err := pause.For(ctx, retryDelay); err != nil {
			return err
		}
	}
}

// get returns a file of at most limit bytes.
func (a *Archive) get(ctx context.Context, address string, limit int64) ([]byte, error) {
	var data []byte
	err := a.retry(ctx, func() error {
		body, err := a.open(ctx, address)
		if err != nil {
			return err
		}
		defer body.Close() //nolint:errcheck // only read
		if data, err = bounded.ReadAll(body, limit); err != nil {
			return fmt.Errorf("get %s: %w", address, err)
		}
		return nil
	})
	return data, err
}

// save downloads a file that has the SHA-256 sum.
func (a *Archive) save(ctx context.Context, address, path, sum string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return a.retry(ctx, func() error {
		body, err := a.open(ctx, address)
		if err != nil {
			return err
		}
		defer body.Close() //nolint:errcheck // only read
		hash := sha256.New()
		return writeAtomically(path, io.TeeReader(body, hash), func() error {
			if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
				return fmt.Errorf("get %s: got SHA-256 %s, want %s", address, got, sum)
			}
			return nil
		})
	})
}

// writeAtomically writes a temporary file and renames it once check has accepted it: a file at path is always
// complete.
func writeAtomically(path string, content io.Reader, check func() error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed on success
	if _, err := io.Copy(f, content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(check(), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// writeCache stores data at path.
func writeCache(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return writeAtomically(path, bytes.NewReader(data), func() error { return nil })
}
