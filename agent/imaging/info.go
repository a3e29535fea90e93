package imaging

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"

	"ironroot/agent/fault"
)

// ImageInfo is the protocol's image_info after validation.
type ImageInfo struct {
	ID           string
	URLs         []string
	Checksum     string // digits or URL, "" when absent
	OSHashAlgo   string // "" when absent, then OSHashValue is "" too
	OSHashValue  string // digits or URL
	DiskFormat   string // "" when absent
	StreamRaw    bool
	ConfigDrive  string // "" when absent
	Proxies      map[string]string
	NoProxy      string
	AuthStrategy string
	AuthUser     string
	AuthPassword string
	// Authorization is the whole value of the Authorization header, "" when absent.
	Authorization string
	// Partition is the layout of the disk for a partition image; nil for a whole-disk image.
	Partition *PartitionInfo
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
	text := func(name string, raw json.RawMessage, into *string) error { return decodeText(name, raw, into) }
	checks := []error{
		required("id", wire.ID),
		text("id", wire.ID, &info.ID),
		parseURLs(wire.URLs, &info.URLs),
		parseChecksums(wire, &info, md5Enabled),
		text("disk_format", wire.DiskFormat, &info.DiskFormat),
		decode("stream_raw_images", wire.StreamRaw, "a boolean", &info.StreamRaw),
		parsePartition(wire.wirePartition, &info.Partition),
		text("configdrive", wire.ConfigDrive, &info.ConfigDrive),
		parseProxies(wire.Proxies, &info.Proxies),
		text("no_proxy", wire.NoProxy, &info.NoProxy),
		text("image_server_auth_strategy", wire.AuthStrategy, &info.AuthStrategy),
		text("image_server_user", wire.AuthUser, &info.AuthUser),
		text("image_server_password", wire.AuthPassword, &info.AuthPassword),
		parseAuthorization(wire.Authorization, &info.Authorization),
	}
	for _, err := range checks {
		if err != nil {
			return ImageInfo{}, err
		}
	}
	return info, nil
}

// ociScheme is the scheme of references to images in an OCI registry, which the agent resolves. Ironic resolves them
// itself and sends the URL of a blob.
const ociScheme = "oci"

// fromRegistry reports whether the image's only URL is a reference to a registry.
func (info ImageInfo) fromRegistry() bool {
	return len(info.URLs) == 1 && strings.HasPrefix(strings.ToLower(info.URLs[0]), ociScheme+"://")
}

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

func parseURLs(raw json.RawMessage, into *[]string) error {
	if err := required("urls", raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil || len(*into) == 0 {
		return fault.InvalidCommandParams("image_info 'urls' must be a list of at least one string")
	}
	for i, text := range *into {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != ociScheme {
			// The error contains no part of the URL: a temporary URL is a secret.
			return fault.InvalidCommandParams("image_info 'urls' entry %d is not an http, https or oci URL", i+1)
		}
		if u.Scheme == ociScheme && len(*into) > 1 { // the registry's credentials are not for other servers
			return fault.InvalidCommandParams(
				"image_info 'urls' entry %d is an oci URL and must be the only entry", i+1)
		}
	}
	return nil
}

// parseProxies rejects invalid proxies, which would otherwise be ignored.
func parseProxies(raw json.RawMessage, into *map[string]string) error {
	if err := decode("proxies", raw, "an object of strings", into); err != nil {
		return err
	}
	for scheme, text := range *into {
		if _, err := parseProxy(text); err != nil && text != "" {
			return fault.InvalidCommandParams("image_info 'proxies' entry %q is not a URL", scheme)
		}
	}
	return nil
}

// parseChecksums requires at least one usable checksum: checksum, or os_hash_algo with os_hash_value.
func parseChecksums(wire wireInfo, info *ImageInfo, md5Enabled bool) error {
	for _, f := range []struct {
		name string
		raw  json.RawMessage
		into *string
	}{
		{"checksum", wire.Checksum, &info.Checksum},
		{"os_hash_algo", wire.OSHashAlgo, &info.OSHashAlgo},
		{"os_hash_value", wire.OSHashValue, &info.OSHashValue},
	} {
		if absent(f.raw) {
			continue
		}
		if err := json.Unmarshal(f.raw, f.into); err != nil || *f.into == "" {
			return fault.InvalidCommandParams("image_info '%s' must be a non-empty string", f.name)
		}
	}
	switch {
	case info.OSHashAlgo != "" && info.OSHashValue == "":
		return fault.InvalidCommandParams("image_info has 'os_hash_algo' without 'os_hash_value'")
	case info.OSHashAlgo == "" && info.OSHashValue != "":
		return fault.InvalidCommandParams("image_info has 'os_hash_value' without 'os_hash_algo'")
	case info.OSHashAlgo != "":
		return nil
	case info.Checksum == "" && info.fromRegistry():
		return nil // the digest of the blob is used
	case info.Checksum == "":
		return fault.InvalidCommandParams("image_info needs 'checksum', or 'os_hash_algo' with 'os_hash_value'")
	case !md5Enabled && len(info.Checksum) <= md5Digits && !isURL(info.Checksum):
		return fault.InvalidCommandParams("image_info 'checksum' is an MD5 sum, and MD5 is disabled; " +
			"'os_hash_algo' with 'os_hash_value' is needed")
	}
	return nil
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
