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

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/storage/configdrive"
	"ironroot/storage/image/fetch"
)

// fetchOptions returns the options for the servers of an image: time limits and TLS settings of the configuration,
// proxies and authorization of info.
func (i *Imager) fetchOptions(info ImageInfo) (fetch.Options, error) {
	i.redactSecrets(info)
	header, err := i.authorization(info)
	if err != nil {
		return fetch.Options{}, err
	}
	client, err := i.client(info)
	if err != nil {
		return fetch.Options{}, fault.ImageDownload(info.ID, err)
	}
	options := i.clientOptions(client)
	options.Header = header
	if i.o.Journal != nil {
		options.Secret = i.o.Journal.Redact
	}
	return options, nil
}

// clientOptions returns options with a client and the configured time limits and retries.
func (i *Imager) clientOptions(client *http.Client) fetch.Options {
	c := i.o.Config.Get()
	return fetch.Options{
		Client:         client,
		ConnectTimeout: c.ImageDownloadConnectionTimeout,
		Retries:        c.ImageDownloadConnectionRetries,
		RetryInterval:  c.ImageDownloadConnectionRetryInterval,
		MaxDuration:    c.ImageDownloadMaxDuration,
		MinRate:        c.ImageDownloadMinRate,
	}
}

// ContainerFetch returns the options for registries of containers: the client, time limits and retries of the
// configuration. With skipVerify, the certificate of the registry is not verified.
func (i *Imager) ContainerFetch(skipVerify bool) (fetch.Options, error) {
	transport, err := i.transport(ImageInfo{})
	if err != nil {
		return fetch.Options{}, err
	}
	if skipVerify {
		transport.TLSClientConfig.InsecureSkipVerify = true
	}
	options := i.clientOptions(&http.Client{Transport: transport})
	if i.o.Journal != nil {
		options.Secret = i.o.Journal.Redact
	}
	return options, nil
}

// lookInRegistry replaces a reference to an image in a registry by the URL of its blob. If info has no checksum, it
// uses the blob's digest. Other images are returned unchanged.
func (i *Imager) lookInRegistry(
	ctx context.Context, options fetch.Options, info ImageInfo,
) (ImageInfo, fetch.Options, error) {
	if !info.fromRegistry() {
		return info, options, nil
	}
	artifact, err := fetch.ResolveOCI(ctx, options, info.URLs[0], runtime.GOARCH)
	if err != nil {
		return info, options, err
	}
	i.o.Log.Info("image found in the registry", "image", info.ID, "url", artifact.URL)
	info.URLs = []string{artifact.URL}
	if info.Checksum == "" && info.OSHashAlgo == "" {
		info.OSHashAlgo, info.OSHashValue = artifact.Checksum.Algorithm, artifact.Checksum.Value
	}
	return info, artifact.Fetch, nil
}

// redactSecrets registers the secrets of info for redaction. Servers may repeat them in replies that are logged.
func (i *Imager) redactSecrets(info ImageInfo) {
	j := i.o.Journal
	if j == nil {
		return
	}
	j.Redact(info.AuthPassword)
	j.Redact(info.Authorization)
	_, credentials, _ := strings.Cut(info.Authorization, " ")
	j.Redact(credentials)
	texts := slices.Concat(info.URLs, slices.Collect(maps.Values(info.Proxies)),
		[]string{info.Checksum, info.OSHashValue, info.ConfigDrive})
	for _, text := range texts {
		j.RedactURLs(text)
	}
}

// readBuffer is the size of a connection's read buffer in bytes. It saves system calls for small reads, such as
// headers and chunks.
const readBuffer = 64 << 10

// client returns an HTTP client for the servers of an image.
func (i *Imager) client(info ImageInfo) (*http.Client, error) {
	transport, err := i.transport(info)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// transport returns an HTTP transport with the configured TLS settings and the proxies of info. It ignores the proxies
// of the environment.
func (i *Imager) transport(info ImageInfo) (*http.Transport, error) {
	c := i.o.Config.Get()
	tlsConfig, err := c.ClientTLS(i.o.Log)
	if err != nil {
		return nil, fmt.Errorf("TLS settings for image servers: %w", err)
	}
	// HTTP/2 has no advantage for one large body at a time, and takes more processor time.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: c.ImageDownloadConnectionTimeout, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		Protocols:             &protocols,
		ReadBufferSize:        readBuffer,
		DialContext:           dialer.DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   c.ImageDownloadConnectionTimeout,
		ResponseHeaderTimeout: c.ImageDownloadConnectionTimeout,
		ExpectContinueTimeout: time.Second,
		// The checksum covers the bytes on the server. A transparently unpacked body would not match it.
		DisableCompression: true,
	}
	config.VerifyWithoutZone(transport)
	if len(info.Proxies) > 0 {
		transport.Proxy = proxyFunc(info.Proxies, info.NoProxy)
		transport.OnProxyConnectResponse = fetch.CheckConnect
	}
	return transport, nil
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

// Open opens the file at a URL for the node, with the limits and retries of image downloads and without credentials.
// A lost connection is resumed. Unless verify is set, the certificate of the server is not verified.
func (i *Imager) Open(ctx context.Context, address string, verify bool) (io.ReadCloser, error) {
	if i.o.Journal != nil {
		i.o.Journal.RedactURLs(address)
	}
	transport, err := i.transport(ImageInfo{})
	if err != nil {
		return nil, err
	}
	if !verify {
		transport.TLSClientConfig.InsecureSkipVerify = true
	}
	client := &http.Client{Transport: transport}
	options := i.clientOptions(client)
	ctx, cancel := withMaxDuration(ctx, options.MaxDuration)
	end := func() {
		cancel()
		client.CloseIdleConnections()
	}
	stream, err := fetch.New(options, i.o.Log).OpenStream(ctx, address, nil)
	if err != nil {
		end()
		return nil, err
	}
	return &download{stream, end}, nil
}

// withMaxDuration returns a context that expires after limit with the cause [fetch.ErrMaxDuration]. It never expires if
// limit is 0.
func withMaxDuration(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fetch.ErrMaxDuration)
}

// download is a stream that releases its context and connections when it is closed.
type download struct {
	io.ReadCloser
	end func()
}

// Close closes the stream, then calls end.
func (d *download) Close() error {
	defer d.end()
	return d.ReadCloser.Close()
}

// opener returns a function that opens the URL of a config drive, without retries. The limits of image downloads apply
// to connecting, each read, the rate and the whole transfer; configdrive limits the size.
func (i *Imager) opener(client *http.Client) configdrive.Opener {
	c := i.o.Config.Get()
	options := fetch.Options{
		Client: client, ConnectTimeout: c.ImageDownloadConnectionTimeout, MinRate: c.ImageDownloadMinRate,
	}
	return func(ctx context.Context, address string) (io.ReadCloser, error) {
		ctx, cancel := withMaxDuration(ctx, c.ImageDownloadMaxDuration)
		body, err := fetch.Open(ctx, options, address)
		if err != nil {
			cancel()
			return nil, err
		}
		return &download{body, cancel}, nil
	}
}
