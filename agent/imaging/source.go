package imaging

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	"ironroot/agent/fault"
	"ironroot/storage/image"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
)

// source returns the image for storage/image: with the limits, TLS settings and credentials of the configuration, the
// URL of the blob if the image is in a registry, and the digest from a checksum file. The caller closes the idle
// connections of its client.
func (i *Imager) source(ctx context.Context, info ImageInfo) (image.Source, error) {
	options, err := i.fetchOptions(info)
	if err != nil {
		return image.Source{}, err
	}
	src := image.Source{URLs: info.Source.URLs, Format: info.Source.Format, Fetch: options}
	if err := i.resolve(ctx, info, &src); err != nil {
		options.Client.CloseIdleConnections()
		return image.Source{}, err
	}
	return src, nil
}

// fetchOptions returns the options for the servers of an image: time limits and TLS settings of the configuration,
// proxies and authorization of info.
func (i *Imager) fetchOptions(info ImageInfo) (fetch.Options, error) {
	i.redactSecrets(info)
	header, err := i.authorization(info)
	if err != nil {
		return fetch.Options{}, err
	}
	client, err := i.client(info.Source.Proxies)
	if err != nil {
		return fetch.Options{}, fault.ImageDownload(info.ID, err)
	}
	options := i.clientOptions(client)
	options.Header = header
	if i.o.Journal != nil {
		options.Secrets = i.o.Journal
	}
	return options, nil
}

// resolve fills in what servers know: the blob of an image in a registry, and the checksum.
func (i *Imager) resolve(ctx context.Context, info ImageInfo, src *image.Source) error {
	digest := info.Source.Digest
	if info.Source.Registry != "" {
		artifact, err := fetch.ResolveOCI(ctx, src.Fetch, info.Source.Registry, runtime.GOARCH)
		if err != nil {
			return err
		}
		i.o.Log.Info("image found in the registry", "image", info.ID, "url", artifact.URL.String())
		src.URLs, src.Fetch = []fetch.URL{artifact.URL}, artifact.Fetch
		if digest == (Digest{}) {
			src.Checksum = artifact.Checksum
			return nil
		}
	}
	if digest.Value == "" || digest.Algorithm != "" && !checksum.Available(digest.Algorithm) {
		_, err := checksum.Sum{Algorithm: digest.Algorithm, Value: digest.Value}.Hash()
		return fault.REST("checksum of image %s cannot be verified: %w", info.ID, err)
	}
	var err error
	src.Checksum, err = fetch.ResolveChecksum(ctx, src.Fetch, digest.Value, digest.Algorithm, src.URLs[0],
		i.o.Config.Get().MD5Enabled)
	if err == nil && src.Checksum.File != "" {
		i.o.Log.Info("checksum found", "image", info.ID, "url", src.Checksum.File,
			"algorithm", src.Checksum.Algorithm, "os_hash_algo", digest.OSHashAlgo)
	}
	return err
}

// redactSecrets registers the secrets of info for redaction. Servers may repeat them in replies that are logged.
func (i *Imager) redactSecrets(info ImageInfo) {
	j, source := i.o.Journal, info.Source
	if j == nil {
		return
	}
	j.Redact(source.Auth.Password)
	j.Redact(source.Auth.Header)
	_, credentials, _ := strings.Cut(source.Auth.Header, " ")
	j.Redact(credentials)
	for _, u := range source.URLs {
		j.RedactURLs(u.Secret())
	}
	for _, p := range source.Proxies.schemes {
		j.RedactURLs(p.text)
	}
	for _, text := range []string{source.Registry, source.Digest.Value, source.Digest.unused, info.ConfigDrive} {
		j.RedactURLs(text)
	}
}

// authorization returns the header for the image's servers: the header of info, the basic authentication of info, or
// the one of the configuration, in this order.
func (i *Imager) authorization(info ImageInfo) (http.Header, error) {
	auth := info.Source.Auth
	if auth.Header != "" {
		return http.Header{"Authorization": {auth.Header}}, nil
	}
	if auth.Strategy == "" {
		c := i.o.Config.Get()
		auth = Auth{Strategy: c.ImageServerAuthStrategy, User: c.ImageServerUser, Password: c.ImageServerPassword}
	}
	if auth.Strategy != "http_basic" {
		return http.Header{}, nil
	}
	if auth.User == "" || auth.Password == "" {
		return nil, fault.ImageDownload(info.ID,
			fmt.Errorf("http_basic authentication needs image_server_user and image_server_password"))
	}
	basic := base64.StdEncoding.EncodeToString([]byte(auth.User + ":" + auth.Password))
	return http.Header{"Authorization": {"Basic " + basic}}, nil
}
