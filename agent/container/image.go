package container

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	"ironroot/storage/image/fetch"
)

// Resolve reads the manifest and the configuration of an image for the machine's architecture. text is
// HOST[:PORT]/REPOSITORY[:TAG][@DIGEST], with or without the prefix docker:// or oci://. secret is a pull secret, ""
// for none: the base64 form of USER:PASSWORD, once or twice, as Ironic sends it. A secret replaces the Authorization of
// o. Errors about text or secret wrap ErrReference. Errors of the registry come from package fetch.
func Resolve(ctx context.Context, o fetch.Options, text, secret string) (*Image, error) {
	if secret != "" {
		text, err := parseSecret(secret)
		if err != nil {
			return nil, err
		}
		credentials := base64.StdEncoding.EncodeToString([]byte(text))
		_, password, _ := strings.Cut(text, ":")
		for _, part := range []string{secret, credentials, password} {
			if o.Secrets != nil {
				o.Secrets.Redact(part)
			}
		}
		o.Header = http.Header{"Authorization": {"Basic " + credentials}}
	}
	remote, err := fetch.ResolveContainer(ctx, o, NormalizeName(text), runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	return &Image{
		Name: remote.Name, Digest: remote.Digest.String(), ID: remote.ConfigDescriptor.Digest.Hex,
		Config: remote.Config.Config, remote: remote,
	}, nil
}

// NormalizeName returns the name of an image without the prefix docker:// or oci://.
func NormalizeName(text string) string {
	for _, prefix := range []string{"docker://", "oci://"} {
		if name, ok := strings.CutPrefix(text, prefix); ok {
			return name
		}
	}
	return text
}

// parseSecret returns USER:PASSWORD. Errors do not quote the secret.
func parseSecret(secret string) (string, error) {
	bad := fmt.Errorf("%w: the pull secret of %d characters is not base64 of USER:PASSWORD, once or twice",
		ErrReference, len(secret))
	once, err := base64.StdEncoding.DecodeString(strings.TrimSpace(secret))
	if err != nil {
		return "", bad
	}
	text := strings.TrimSpace(string(once))
	if twice, err := base64.StdEncoding.DecodeString(text); err == nil {
		text = strings.TrimSpace(string(twice))
	}
	user, password, found := strings.Cut(text, ":")
	if !found || user == "" || password == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return "", bad
	}
	return text, nil
}
