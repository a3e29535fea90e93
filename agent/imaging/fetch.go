package imaging

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"ironroot/agent/config"
	"ironroot/storage/image/fetch"
)

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
	transport, err := i.transport(Proxies{})
	if err != nil {
		return fetch.Options{}, err
	}
	if skipVerify {
		transport.TLSClientConfig.InsecureSkipVerify = true
	}
	options := i.clientOptions(&http.Client{Transport: transport})
	if i.o.Journal != nil {
		options.Secrets = i.o.Journal
	}
	return options, nil
}

// readBuffer is the size of a connection's read buffer in bytes. It saves system calls for small reads, such as
// headers and chunks.
const readBuffer = 64 << 10

// client returns an HTTP client for the servers of an image.
func (i *Imager) client(proxies Proxies) (*http.Client, error) {
	transport, err := i.transport(proxies)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// transport returns an HTTP transport with the configured TLS settings and the proxies. It ignores the proxies of
// the environment.
func (i *Imager) transport(proxies Proxies) (*http.Transport, error) {
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
	if len(proxies.schemes) > 0 {
		transport.Proxy = proxies.choose
		transport.OnProxyConnectResponse = fetch.CheckConnect
	}
	return transport, nil
}

// Open opens the file at a URL for the node, with the limits and retries of image downloads and without credentials.
// A lost connection is resumed. Unless verify is set, the certificate of the server is not verified.
func (i *Imager) Open(ctx context.Context, address string, verify bool) (io.ReadCloser, error) {
	if i.o.Journal != nil {
		i.o.Journal.RedactURLs(address)
	}
	transport, err := i.transport(Proxies{})
	if err != nil {
		return nil, err
	}
	if !verify {
		transport.TLSClientConfig.InsecureSkipVerify = true
	}
	u, err := fetch.ParseURL(address)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport}
	options := i.clientOptions(client)
	ctx, cancel := withMaxDuration(ctx, options.MaxDuration)
	stream, err := fetch.New(options, i.o.Log).OpenStream(ctx, u, nil)
	if err != nil {
		cancel()
		client.CloseIdleConnections()
		return nil, err
	}
	return &download{stream, cancel, client}, nil
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
	cancel context.CancelFunc
	client *http.Client // nil if others use its connections
}

// Close implements [io.Closer].
func (d *download) Close() error {
	err := d.ReadCloser.Close()
	d.cancel()
	if d.client != nil {
		d.client.CloseIdleConnections()
	}
	return err
}

// driveOpener opens the URL of a config drive, without retries. The limits of image downloads apply to connecting, each
// read, the rate and the whole transfer; configdrive limits the size.
type driveOpener struct {
	client *http.Client
	c      *config.Config
}

// Open implements [configdrive.Opener].
func (o driveOpener) Open(ctx context.Context, address string) (io.ReadCloser, error) {
	ctx, cancel := withMaxDuration(ctx, o.c.ImageDownloadMaxDuration)
	body, err := fetch.Open(ctx, fetch.Options{
		Client: o.client, ConnectTimeout: o.c.ImageDownloadConnectionTimeout, MinRate: o.c.ImageDownloadMinRate,
	}, address)
	if err != nil {
		cancel()
		return nil, err
	}
	return &download{body, cancel, nil}, nil
}
