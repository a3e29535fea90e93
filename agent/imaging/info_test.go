package imaging

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/fault"
)

const sha256Digits = "c5c3321ac2d78ee1f3f7bdca0d28feb0ade2c02ed3cfc0238f87dd982bb56553"

// wireImage is image_info as a conductor sends it, with some fields changed; a nil value removes the field.
func wireImage(t *testing.T, changes map[string]any) json.RawMessage {
	t.Helper()
	info := map[string]any{
		"id": "inst.raw", "urls": []string{"http://192.0.2.1:8080/inst.raw"}, "disk_format": "raw",
		"container_format": json.RawMessage("null"), "stream_raw_images": true,
		"os_hash_algo": "sha256", "os_hash_value": sha256Digits, "node_uuid": "b77a8c26", "configdrive": "H4sI",
	}
	maps.Copy(info, changes)
	maps.DeleteFunc(info, func(_ string, value any) bool { return value == nil })
	data, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// layout returns the fields that a conductor adds for a partition image, with some of them changed.
func layout(changes map[string]any) map[string]any {
	fields := map[string]any{
		"image_type": "partition", "root_mb": 100, "swap_mb": 0, "ephemeral_mb": 0, "ephemeral_format": "ext4",
		"preserve_ephemeral": false, "root_gb": 1, "kernel": json.RawMessage("null"),
		"ramdisk": json.RawMessage("null"), "boot_option": "local", "deploy_boot_mode": "uefi", "disk_label": "gpt",
	}
	maps.Copy(fields, changes)
	return fields
}

func TestParsePartitionImage(t *testing.T) {
	for name, c := range map[string]struct {
		changes map[string]any
		want    PartitionInfo
	}{
		"root only": {nil, PartitionInfo{Root: 100 * mib, EphemeralFormat: "ext4", BootMode: "uefi"}},
		"everything": {
			map[string]any{
				"swap_mb": 7, "ephemeral_mb": 20, "ephemeral_format": "xfs", "preserve_ephemeral": true,
				"deploy_boot_mode": "bios",
			},
			PartitionInfo{
				Root: 100 * mib, Swap: 7 * mib, Ephemeral: 20 * mib, EphemeralFormat: "xfs", PreserveEphemeral: true,
				BootMode: "bios",
			},
		},
		"null is nothing": {
			map[string]any{
				"swap_mb": json.RawMessage("null"), "ephemeral_mb": json.RawMessage("null"),
				"ephemeral_format": json.RawMessage("null"), "preserve_ephemeral": json.RawMessage("null"),
				"deploy_boot_mode": json.RawMessage("null"),
			},
			PartitionInfo{Root: 100 * mib},
		},
		"numbers as texts": {
			map[string]any{"root_mb": "5120", "swap_mb": "1"},
			PartitionInfo{Root: 5120 * mib, Swap: mib, EphemeralFormat: "ext4", BootMode: "uefi"},
		},
	} {
		info, err := ParseImageInfo(wireImage(t, layout(c.changes)), false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(&c.want, info.Partition); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	info, err := ParseImageInfo(wireImage(t, layout(map[string]any{"image_type": nil, "root_mb": "nonsense"})), false)
	if err != nil || info.Partition != nil {
		t.Errorf("whole-disk image with a layout: got %+v and %v, want none looked at", info.Partition, err)
	}
}

// A violation of a rule of image_info is a fault of code 400 that names the field.
func TestParseImageInfoRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		changes map[string]any
		field   string
	}{
		{"no id", map[string]any{"id": nil}, "'id'"},
		{"empty id", map[string]any{"id": ""}, "'id'"},
		{"id is a number", map[string]any{"id": 5}, "'id'"},
		{"no urls", map[string]any{"urls": nil}, "'urls'"},
		{"urls is a text", map[string]any{"urls": "http://192.0.2.1/i"}, "'urls'"},
		{"urls is empty", map[string]any{"urls": []string{}}, "'urls'"},
		{"file URL", map[string]any{"urls": []string{"http://192.0.2.1/i", "file:///etc/shadow"}}, "'urls' entry 2"},
		{"URL without host", map[string]any{"urls": []string{"http:///i"}}, "'urls' entry 1"},
		{
			"reference to a registry among other URLs",
			map[string]any{"urls": []string{"http://192.0.2.1/i", "oci://192.0.2.1/i"}},
			"'urls' entry 2",
		},
		{"no checksum at all", map[string]any{"os_hash_algo": nil, "os_hash_value": nil}, "'checksum'"},
		{"checksum is empty", map[string]any{"checksum": ""}, "'checksum'"},
		{"checksum is a number", map[string]any{"checksum": 7}, "'checksum'"},
		{"algorithm alone", map[string]any{"os_hash_value": nil}, "'os_hash_value'"},
		{"value alone", map[string]any{"os_hash_algo": nil}, "'os_hash_algo'"},
		{"algorithm is empty", map[string]any{"os_hash_algo": ""}, "'os_hash_algo'"},
		{"value is empty", map[string]any{"os_hash_value": ""}, "'os_hash_value'"},
		{
			"half a pair beside a checksum",
			map[string]any{"checksum": sha256Digits, "os_hash_value": nil},
			"'os_hash_value'",
		},
		{"stream_raw_images is a text", map[string]any{"stream_raw_images": "yes"}, "'stream_raw_images'"},
		{"image_type is a number", map[string]any{"image_type": 1}, "'image_type'"},
		{"partition image alone", map[string]any{"image_type": "partition"}, "'root_mb'"},
		{"no root_mb", layout(map[string]any{"root_mb": nil}), "'root_mb'"},
		{"no swap_mb", layout(map[string]any{"swap_mb": nil}), "'swap_mb'"},
		{"no ephemeral_mb", layout(map[string]any{"ephemeral_mb": nil}), "'ephemeral_mb'"},
		{"no ephemeral_format", layout(map[string]any{"ephemeral_format": nil}), "'ephemeral_format'"},
		{"no preserve_ephemeral", layout(map[string]any{"preserve_ephemeral": nil}), "'preserve_ephemeral'"},
		{"root_mb is null", layout(map[string]any{"root_mb": json.RawMessage("null")}), "'root_mb'"},
		{"root_mb is 0", layout(map[string]any{"root_mb": 0}), "'root_mb'"},
		{"root_mb is no number", layout(map[string]any{"root_mb": "1G"}), "'root_mb'"},
		{"root_mb is an empty text", layout(map[string]any{"root_mb": ""}), "'root_mb'"},
		{"root_mb is a list", layout(map[string]any{"root_mb": []int{1}}), "'root_mb'"},
		{"root_mb is a fraction", layout(map[string]any{"root_mb": 10.5}), "'root_mb'"},
		{"swap_mb is negative", layout(map[string]any{"swap_mb": -1}), "'swap_mb'"},
		{"ephemeral_mb is a boolean", layout(map[string]any{"ephemeral_mb": true}), "'ephemeral_mb'"},
		{"root_mb overflows", layout(map[string]any{"root_mb": int64(1) << 62}), "'root_mb'"},
		{
			"ephemeral without a format", layout(map[string]any{"ephemeral_mb": 5, "ephemeral_format": ""}),
			"'ephemeral_format'",
		},
		{"preserve_ephemeral is a text", layout(map[string]any{"preserve_ephemeral": "true"}), "'preserve_ephemeral'"},
		{"configdrive is an object", map[string]any{"configdrive": map[string]any{}}, "'configdrive'"},
		{"proxies is a text", map[string]any{"proxies": "http://192.0.2.3"}, "'proxies'"},
		{
			"proxy with a bad port",
			map[string]any{"proxies": map[string]string{"http": "http://user:secret@192.0.2.3:x"}},
			"'proxies'",
		},
		{"proxy without a host", map[string]any{"proxies": map[string]string{"https": "http:///"}}, "'proxies'"},
		{
			"authorization is a number",
			map[string]any{"image_request_authorization": 7},
			"'image_request_authorization'",
		},
		{
			"authorization is not base64",
			map[string]any{"image_request_authorization": "%%"},
			"'image_request_authorization'",
		},
		{
			"authorization smuggles a header",
			map[string]any{
				"image_request_authorization": base64.StdEncoding.EncodeToString([]byte("Bearer a\r\nX: y")),
			},
			"'image_request_authorization'",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseImageInfo(wireImage(t, tt.changes), true)
			wantInvalid(t, err, tt.field)
		})
	}
	for _, raw := range []string{"", "null", "[]", `"text"`} {
		_, err := ParseImageInfo(json.RawMessage(raw), true)
		wantInvalid(t, err, "image_info")
	}
}

func wantInvalid(t *testing.T, err error, field string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != http.StatusBadRequest || f.Type != "InvalidCommandParamsError" {
		t.Fatalf("got %v, want an InvalidCommandParamsError of code 400", err)
	}
	if !strings.Contains(f.Details, field) {
		t.Errorf("got details %q, want them to name %s", f.Details, field)
	}
}

func TestParseImageInfoMD5(t *testing.T) {
	md5 := map[string]any{"os_hash_algo": nil, "os_hash_value": nil, "checksum": strings.Repeat("a", 32)}
	if _, err := ParseImageInfo(wireImage(t, md5), true); err != nil {
		t.Errorf("MD5 enabled: %v", err)
	}
	_, err := ParseImageInfo(wireImage(t, md5), false)
	wantInvalid(t, err, "'checksum'")
	md5["checksum"] = "HTTP://192.0.2.1/sums"
	if _, err := ParseImageInfo(wireImage(t, md5), false); err != nil {
		t.Errorf("a URL of checksums is no MD5 sum: %v", err)
	}
	md5["checksum"], md5["os_hash_algo"], md5["os_hash_value"] = strings.Repeat("a", 32), "sha256", sha256Digits
	if _, err := ParseImageInfo(wireImage(t, md5), false); err != nil {
		t.Errorf("an MD5 sum beside a SHA-256 sum: %v", err)
	}
}

// An image in a registry needs no checksum, because it has a digest. A checksum that is given takes precedence.
func TestParseImageInfoOfRegistry(t *testing.T) {
	reference := map[string]any{"urls": []string{"oci://192.0.2.1:5000/os/image:1"}}
	if got, err := ParseImageInfo(wireImage(t, reference), false); err != nil ||
		got.Source.Digest.Value != sha256Digits {
		t.Errorf("with a checksum: got %+v and %v", got, err)
	}
	reference["os_hash_algo"], reference["os_hash_value"] = nil, nil
	if _, err := ParseImageInfo(wireImage(t, reference), false); err != nil {
		t.Errorf("without: %v", err)
	}
	reference["os_hash_algo"] = "sha256"
	_, err := ParseImageInfo(wireImage(t, reference), false)
	wantInvalid(t, err, "'os_hash_value'")
}

func TestParseImageInfo(t *testing.T) {
	got, err := ParseImageInfo(wireImage(t, map[string]any{
		"proxies": map[string]string{"http": "proxy:3128"}, "no_proxy": "192.0.2.0/24",
		"image_server_auth_strategy": "http_basic", "image_server_user": "u", "image_server_password": "p",
		"image_request_authorization": base64.StdEncoding.EncodeToString([]byte("Bearer abc")),
		"image_type":                  "whole-disk-image",
	}), false)
	if err != nil {
		t.Fatal(err)
	}
	want := ImageInfo{
		ID: "inst.raw", Source: source("http://192.0.2.1:8080/inst.raw", "raw", sha256Digest(sha256Digits)),
		StreamRaw: true, ConfigDrive: "H4sI",
	}
	want.Source.Proxies = proxies(map[string]string{"http": "proxy:3128"}, "192.0.2.0/24")
	want.Source.Auth = Auth{Strategy: "http_basic", User: "u", Password: "p", Header: "Bearer abc"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got image %+v, want %+v", got, want)
	}
}

func FuzzParseImageInfo(f *testing.F) {
	f.Add([]byte(`{"id": "i", "urls": ["http://h/i"], "checksum": "` + sha256Digits + `"}`))
	f.Add([]byte(`{"id": "i", "urls": ["http://h/i"], "checksum": "` + sha256Digits +
		`", "image_type": "partition", "root_mb": 5,
		"swap_mb": "6", "ephemeral_mb": 7, "ephemeral_format": "xfs", "preserve_ephemeral": null}`))
	f.Add([]byte(`{"id": null, "urls": [null], "os_hash_algo": {}}`))
	f.Add([]byte(`{"id": "i", "urls": ["oci://h/i"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		info, err := ParseImageInfo(raw, true)
		s := info.Source
		sum := s.Digest.Value != "" || s.Registry != "" // whose digest is one
		if err == nil && (info.ID == "" || len(s.URLs) == 0 && s.Registry == "" || !sum) {
			t.Errorf("%q was taken for a whole image: %+v", raw, info)
		}
		p := info.Partition
		if p != nil && (p.Root <= 0 || p.Swap < 0 || p.Ephemeral < 0 || p.Root+p.Swap+p.Ephemeral < 0) {
			t.Errorf("%q gave the layout %+v", raw, p)
		}
	})
}
