package imaging

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"ironroot/agent/fault"
	"ironroot/storage/configdrive"
	"ironroot/storage/image"
)

// fetch says how the image's servers are talked to: configured time limits and TLS, proxies and authorisation of info.
func (i *Imager) fetch(info ImageInfo) (image.Fetch, error) {
	c := i.o.Config.Get()
	i.hush(info)
	header, err := i.authorization(info)
	if err != nil {
		return image.Fetch{}, err
	}
	client, err := i.client(info)
	if err != nil {
		return image.Fetch{}, fault.ImageDownload(info.ID, err)
	}
	fetch := image.Fetch{
		Client:         client,
		Header:         header,
		ConnectTimeout: c.ImageDownloadConnectionTimeout,
		Retries:        c.ImageDownloadConnectionRetries,
		RetryInterval:  c.ImageDownloadConnectionRetryInterval,
		MaxDuration:    c.ImageDownloadMaxDuration,
		MinRate:        c.ImageDownloadMinRate,
	}
	if i.o.Journal != nil {
		fetch.Secret = i.o.Journal.Redact
	}
	return fetch, nil
}

// lookInRegistry replaces the reference to an image in a registry by its URL and, where none came with it, by its digest as
// the checksum. Of any other image it returns what it got.
func (i *Imager) lookInRegistry(ctx context.Context, fetch image.Fetch, info ImageInfo) (ImageInfo, image.Fetch, error) {
	if !info.fromRegistry() {
		return info, fetch, nil
	}
	artifact, err := image.ResolveOCI(ctx, fetch, info.URLs[0], runtime.GOARCH)
	if err != nil {
		return info, fetch, err
	}
	i.o.Log.Info("image found in the registry", "image", info.ID, "url", artifact.URL)
	info.URLs = []string{artifact.URL}
	if info.Checksum == "" && info.OSHashAlgo == "" {
		info.OSHashAlgo, info.OSHashValue = artifact.Checksum.Algorithm, artifact.Checksum.Value
	}
	return info, artifact.Fetch, nil
}

// hush registers the secrets that came with an image. Nothing here logs them; what a server answers might.
func (i *Imager) hush(info ImageInfo) {
	j := i.o.Journal
	if j == nil {
		return
	}
	j.Redact(info.AuthPassword)
	j.Redact(info.Authorization)
	_, credentials, _ := strings.Cut(info.Authorization, " ")
	j.Redact(credentials)
	for _, list := range [][]string{info.URLs, {info.Checksum, info.OSHashValue, info.ConfigDrive}, slices.Collect(maps.Values(info.Proxies))} {
		for _, text := range list {
			j.RedactURLs(text)
		}
	}
}

// readBuffer is the size of a connection's read buffer in bytes. It saves system calls for small reads, such as
// headers and chunks.
const readBuffer = 64 << 10

// client returns an HTTP client with the configured TLS settings and the proxies of info. It ignores the proxies of
// the environment.
func (i *Imager) client(info ImageInfo) (*http.Client, error) {
	c := i.o.Config.Get()
	tlsConfig, err := c.ClientTLS(i.o.Log)
	if err != nil {
		return nil, fmt.Errorf("TLS settings for image servers: %w", err)
	}
	// HTTP/2 has no advantage for one large body at a time, and takes more processor time.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Protocols:             &protocols,
		ReadBufferSize:        readBuffer,
		DialContext:           (&net.Dialer{Timeout: c.ImageDownloadConnectionTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   c.ImageDownloadConnectionTimeout,
		ResponseHeaderTimeout: c.ImageDownloadConnectionTimeout,
		ExpectContinueTimeout: time.Second,
		// The checksum covers the bytes on the server. A transparently unpacked body would not match it.
		DisableCompression: true,
	}
	if len(info.Proxies) > 0 {
		transport.Proxy = proxyFunc(info.Proxies, info.NoProxy)
	}
	return &http.Client{Transport: transport}, nil
}

// authorization returns the header for the image's servers: the header of info, the basic authentication of info, or
// that of the configuration, in this order.
func (i *Imager) authorization(info ImageInfo) (http.Header, error) {
	if info.Authorization != "" {
		return http.Header{"Authorization": {info.Authorization}}, nil
	}
	c := i.o.Config.Get()
	strategy, user, password := info.AuthStrategy, info.AuthUser, info.AuthPassword
	if strategy == "" {
		strategy, user, password = c.ImageServerAuthStrategy, c.ImageServerUser, c.ImageServerPassword
	}
	if strategy != "http_basic" {
		return http.Header{}, nil
	}
	if user == "" || password == "" {
		return nil, fault.ImageDownload(info.ID,
			fmt.Errorf("http_basic authentication needs image_server_user and image_server_password"))
	}
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	return http.Header{"Authorization": {"Basic " + basic}}, nil
}

// opener fetches a config drive, once. Connect, each read and the rate are limited as for images, its size by
// configdrive.
func (i *Imager) opener(client *http.Client) configdrive.Opener {
	c := i.o.Config.Get()
	fetch := image.Fetch{Client: client, ConnectTimeout: c.ImageDownloadConnectionTimeout, MinRate: c.ImageDownloadMinRate}
	return func(ctx context.Context, address string) (io.ReadCloser, error) {
		return image.Open(ctx, fetch, address)
	}
}
