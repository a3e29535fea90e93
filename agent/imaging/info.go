package imaging

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"

	"ironroot/agent/fault"
	"ironroot/storage/image/checksum"
	"ironroot/storage/image/fetch"
)

// ImageInfo is the protocol's image_info after validation.
type ImageInfo struct {
	ID          string
	Source      Source
	StreamRaw   bool
	ConfigDrive string // "" when absent
	// Partition is the layout of the disk for a partition image; nil for a whole-disk image.
	Partition *PartitionInfo
}

// Source says where an image comes from and what it must be.
type Source struct {
	URLs     []fetch.URL // tried in order; nil if Registry is set
	Registry string      // reference to the image in an OCI registry, which the agent resolves; "" for none
	Digest   Digest
	Format   string // "" when absent
	Proxies  Proxies
	Auth     Auth
}

// Digest is the checksum that an image must have. It is empty if the registry's is used.
type Digest struct {
	Value      string // hexadecimal digits, or the URL of a checksum file
	Algorithm  string // "" to choose it by the number of digits
	OSHashAlgo string // as Ironic sent it, for the log

	unused string // the other digest that was sent, "" when absent. It can be a URL with a password
}

// Auth authorizes requests to the servers of an image. If it is empty, the configuration does.
type Auth struct {
	Strategy, User, Password string

	Header string // the whole value of the Authorization header, "" when absent
}

// wireInfo is image_info as JSON. Null counts as absent in every field.
type wireInfo struct {
	ID            json.RawMessage `json:"id"`
	URLs          json.RawMessage `json:"urls"`
	Checksum      json.RawMessage `json:"checksum"`
	OSHashAlgo    json.RawMessage `json:"os_hash_algo"`
	OSHashValue   json.RawMessage `json:"os_hash_value"`
	DiskFormat    json.RawMessage `json:"disk_format"`
	StreamRaw     json.RawMessage `json:"stream_raw_images"`
	ConfigDrive   json.RawMessage `json:"configdrive"`
	Proxies       json.RawMessage `json:"proxies"`
	NoProxy       json.RawMessage `json:"no_proxy"`
	AuthStrategy  json.RawMessage `json:"image_server_auth_strategy"`
	AuthUser      json.RawMessage `json:"image_server_user"`
	AuthPassword  json.RawMessage `json:"image_server_password"`
	Authorization json.RawMessage `json:"image_request_authorization"`
	wirePartition
}

// md5Digits is the number of hexadecimal digits of an MD5 checksum.
const md5Digits = 32

// ParseImageInfo parses and validates the protocol's image_info. Its errors are faults of code 400 that name the
// field.
func ParseImageInfo(raw json.RawMessage, md5Enabled bool) (ImageInfo, error) {
	var wire wireInfo
	if absent(raw) {
		return ImageInfo{}, fault.InvalidCommandParams("image_info is missing")
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return ImageInfo{}, fault.InvalidCommandParams("image_info must be an object")
	}
	info := ImageInfo{}
	source := &info.Source
	var noProxy string
	text := func(name string, raw json.RawMessage, into *string) error { return decodeText(name, raw, into) }
	checks := []error{
		required("id", wire.ID),
		text("id", wire.ID, &info.ID),
		parseURLs(wire.URLs, source),
		parseChecksums(wire, source, md5Enabled),
		text("disk_format", wire.DiskFormat, &source.Format),
		decode("stream_raw_images", wire.StreamRaw, "a boolean", &info.StreamRaw),
		parsePartition(wire.wirePartition, &info.Partition),
		text("configdrive", wire.ConfigDrive, &info.ConfigDrive),
		parseProxies(wire.Proxies, &source.Proxies),
		text("no_proxy", wire.NoProxy, &noProxy),
		text("image_server_auth_strategy", wire.AuthStrategy, &source.Auth.Strategy),
		text("image_server_user", wire.AuthUser, &source.Auth.User),
		text("image_server_password", wire.AuthPassword, &source.Auth.Password),
		parseAuthorization(wire.Authorization, &source.Auth.Header),
	}
	for _, err := range checks {
		if err != nil {
			return ImageInfo{}, err
		}
	}
	source.Proxies.direct = parseNoProxy(noProxy)
	return info, nil
}

// ociScheme is the scheme of references to images in an OCI registry, which the agent resolves. Ironic resolves them
// itself and sends the URL of a blob.
const ociScheme = "oci"

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func required(field string, raw json.RawMessage) error {
	if absent(raw) || string(raw) == `""` {
		return fault.InvalidCommandParams("image_info has no '%s'", field)
	}
	return nil
}

// decode parses a field into the value that into points to. The error does not contain the field's value, which may be
// a secret.
func decode(field string, raw json.RawMessage, what string, into any) error {
	if absent(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fault.InvalidCommandParams("image_info '%s' must be %s", field, what)
	}
	return nil
}

func decodeText(field string, raw json.RawMessage, into *string) error {
	return decode(field, raw, "a string", into)
}

func parseURLs(raw json.RawMessage, into *Source) error {
	if err := required("urls", raw); err != nil {
		return err
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return fault.InvalidCommandParams("image_info 'urls' must be a list of at least one string")
	}
	for i, text := range list {
		u, err := fetch.ParseURL(text)
		if err == nil {
			into.URLs = append(into.URLs, u)
			continue
		}
		if reference, err := url.Parse(text); err != nil || reference.Host == "" || reference.Scheme != ociScheme {
			// The error contains no part of the URL: a temporary URL is a secret.
			return fault.InvalidCommandParams("image_info 'urls' entry %d is not an http, https or oci URL", i+1)
		}
		if len(list) > 1 { // the registry's credentials are not for other servers
			return fault.InvalidCommandParams(
				"image_info 'urls' entry %d is an oci URL and must be the only entry", i+1)
		}
		into.Registry = text
	}
	return nil
}

// parseProxies rejects invalid proxies, which would otherwise be ignored.
func parseProxies(raw json.RawMessage, into *Proxies) error {
	var texts map[string]string
	if err := decode("proxies", raw, "an object of strings", &texts); err != nil {
		return err
	}
	for scheme, text := range texts {
		if text == "" {
			continue
		}
		u, err := parseProxy(text)
		if err != nil {
			return fault.InvalidCommandParams("image_info 'proxies' entry %q is not a URL", scheme)
		}
		into.set(scheme, proxy{text, u})
	}
	return nil
}

// parseChecksums requires at least one usable checksum: checksum, or os_hash_algo with os_hash_value. It selects one as
// the protocol does: os_hash_value if os_hash_algo is known, otherwise checksum.
func parseChecksums(wire wireInfo, source *Source, md5Enabled bool) error {
	var sent struct{ Checksum, OSHashAlgo, OSHashValue string }
	for _, f := range []struct {
		name string
		raw  json.RawMessage
		into *string
	}{
		{"checksum", wire.Checksum, &sent.Checksum},
		{"os_hash_algo", wire.OSHashAlgo, &sent.OSHashAlgo},
		{"os_hash_value", wire.OSHashValue, &sent.OSHashValue},
	} {
		if absent(f.raw) {
			continue
		}
		if err := json.Unmarshal(f.raw, f.into); err != nil || *f.into == "" {
			return fault.InvalidCommandParams("image_info '%s' must be a non-empty string", f.name)
		}
	}
	switch {
	case sent.OSHashAlgo != "" && sent.OSHashValue == "":
		return fault.InvalidCommandParams("image_info has 'os_hash_algo' without 'os_hash_value'")
	case sent.OSHashAlgo == "" && sent.OSHashValue != "":
		return fault.InvalidCommandParams("image_info has 'os_hash_value' without 'os_hash_algo'")
	case sent.OSHashAlgo == "" && sent.Checksum == "" && source.Registry != "":
		return nil // the digest of the blob is used
	case sent.OSHashAlgo != "":
	case sent.Checksum == "":
		return fault.InvalidCommandParams("image_info needs 'checksum', or 'os_hash_algo' with 'os_hash_value'")
	case !md5Enabled && len(sent.Checksum) <= md5Digits && !isURL(sent.Checksum):
		return fault.InvalidCommandParams("image_info 'checksum' is an MD5 sum, and MD5 is disabled; " +
			"'os_hash_algo' with 'os_hash_value' is needed")
	}
	source.Digest = selectDigest(sent.Checksum, sent.OSHashAlgo, sent.OSHashValue)
	return nil
}

// selectDigest returns the digest that is used of the two that Ironic can send.
func selectDigest(sum, osHashAlgo, osHashValue string) Digest {
	if sum == "" || checksum.Available(osHashAlgo) {
		return Digest{Value: osHashValue, Algorithm: osHashAlgo, OSHashAlgo: osHashAlgo, unused: sum}
	}
	return Digest{Value: sum, OSHashAlgo: osHashAlgo, unused: osHashValue}
}

func isURL(text string) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

func parseAuthorization(raw json.RawMessage, into *string) error {
	const field = "image_request_authorization"
	var encoded string
	if err := decodeText(field, raw, &encoded); err != nil || encoded == "" {
		return err
	}
	header, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fault.InvalidCommandParams("image_info '%s' is not base64", field)
	}
	for _, b := range header {
		if b < ' ' || b == 0x7f {
			return fault.InvalidCommandParams("image_info '%s' is not the value of a header", field)
		}
	}
	*into = string(header)
	return nil
}
