//go:build linux

package conformance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// equal reports whether two replies are the same after normaliseExchange.
func equal(a, b string) bool {
	return cmp.Equal(normaliseExchange(body(a)).Body, normaliseExchange(body(b)).Body)
}

func body(text string) exchange {
	x := exchange{Header: map[string]string{"Content-Type": "application/json"}}
	x.Body = parse(text)
	return x
}

// Each normaliser makes values equal that differ without meaning, and lets real differences survive.
func TestNormaliseReplies(t *testing.T) {
	written := func(id string) string {
		return `{"command_result": {"result": "prepare_image: image written to device /dev/vda root_uuid=` + id + `"}}`
	}
	const id, otherID = `"06aeaaf8-4b4d-4a3b-8b4c-9f2c3a1d0e01"`, `"16aeaaf8-4b4d-4a3b-8b4c-9f2c3a1d0e02"`
	for _, tt := range []struct {
		name, a, b string
		want       bool
	}{
		{
			"commandID", `{"id": ` + id + `, "command_status": "X"}`, `{"id": ` + otherID + `, "command_status": "X"}`,
			true,
		},
		{"commandID", `{"id": ` + id + `, "command_status": "X"}`, `{"id": 5, "command_status": "X"}`, false},
		{"commandID", `{"id": ` + id + `}`, `{"id": ` + otherID + `}`, false},
		{"errorTexts", `{"message": "a"}`, `{"message": "b"}`, true},
		{"errorTexts", `{"message": "a"}`, `{"message": ""}`, false},
		{"errorTexts", `{"message": "a"}`, `{}`, false},
		{"errorTexts", `{"faultstring": "Agent is busy: x"}`, `{"faultstring": "Agent is occupied: x"}`, false},
		{"resultText", `{"command_result": {"result": "sync: a"}}`, `{"command_result": {"result": "sync: b"}}`, true},
		{"resultText", `{"command_result": {"result": "sync: a"}}`, `{"command_result": {"result": "syn: a"}}`, false},
		{
			"resultText", `{"command_result": {"result": "sync: a", "more": 1}}`,
			`{"command_result": {"result": "sync: b", "more": 1}}`, false,
		},
		{"resultText, random", written(id[1:37]), written(otherID[1:37]), true},
		{"resultText, of the image", written(rootUUID), written(otherID[1:37]), false},
		{"resultText, id of an MBR", written("0x11223344"), written("0x00000000"), false},
		{"resultText, none", written("None"), written(id[1:37]), false},
		{"diskNames", `{"clean_result": {"/dev/sda": null}}`, `{"clean_result": {"/dev/sdb": null}}`, true},
		{
			"diskNames", `{"clean_result": {"/dev/sda": null}}`,
			`{"clean_result": {"/dev/sda": null, "/dev/sdb": null}}`, false,
		},
		{"diskNames", `{"clean_result": {"/dev/sda": null}}`, `{"clean_result": {"/dev/vda": null}}`, false},
		{"diskNames", `{"clean_result": {"/dev/sda": null}}`, `{"clean_result": {"/dev/sda": 1}}`, false},
		{"diskNames", `{"clean_result": {"/dev/sda": null}}`, `{"clean_result": {}}`, false},
		{"startTime", `{"started_at": 1.5, "version": "1"}`, `{"started_at": 2.5, "version": "2"}`, true},
		{"startTime", `{"started_at": 1.5, "version": "1"}`, `{"started_at": "2.5", "version": "1"}`, false},
		{"startTime", `{"started_at": 1.5, "version": "1"}`, `{"started_at": 1.5, "version": ""}`, false},
	} {
		if got := equal(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %s and %s: equal is %v, want %v", tt.name, tt.a, tt.b, got, tt.want)
		}
	}
}

func TestPartitionUUIDs(t *testing.T) {
	const other = "6a6e7a52-5d0e-4b1c-9d0c-1c6d0c2b7e12"
	result := func(root, esp string) string {
		return `{"command_result": {"root uuid": "` + root + `", "efi system partition uuid": "` + esp + `"}}`
	}
	for _, tt := range []struct {
		name, a, b string
		want       bool
	}{
		{"FAT", result(rootUUID, "1234-ABCD"), result(rootUUID, "4321-ABCD"), true},
		{"no FAT", result(rootUUID, "1234-ABCD"), result(rootUUID, other), false},
		{"random", result(other, ""), result(strings.Replace(other, "6a", "7a", 1), ""), true},
		{"of the image", result(rootUUID, ""), result(other, ""), false},
		{"FAT of the image", result(rootUUID, fatID), result(rootUUID, "4321-ABCD"), false},
		{"id of an MBR", result("0x11223344", ""), result("0x00000000", ""), false},
	} {
		if got := equal(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: equal is %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestNormaliseRequests(t *testing.T) {
	heartbeat := func(certificate, version string) ironicRequest {
		return ironicRequest{Path: "/v1/heartbeat/x", Body: object{
			"agent_verify_ca": certificate, "agent_version": version,
		}}
	}
	const pem = "-----BEGIN CERTIFICATE-----\n"
	first := heartbeat(pem+"A", "1")
	for _, tt := range []struct {
		name   string
		second ironicRequest
		want   int // requests that remain
	}{
		{"repetition", heartbeat(pem+"A", "1"), 1},
		{"another certificate and version", heartbeat(pem+"B", "2"), 1},
		{"no certificate", heartbeat("", "1"), 2},
		{"no version", heartbeat(pem+"A", ""), 2},
		{"another path", ironicRequest{Path: "/v1/lookup"}, 2},
	} {
		if got := normaliseRequests([]ironicRequest{first, tt.second}); len(got) != tt.want {
			t.Errorf("%s: got %v, want %d requests", tt.name, got, tt.want)
		}
	}
}

func TestNormaliseDisk(t *testing.T) {
	state := func(id, kind, uuid, filesystem string) *diskState {
		return normaliseDisk(&diskState{
			Table: &table{ID: id, Partitions: []partition{{Type: kind, UUID: uuid}}},
			Parts: []map[string]string{{"TYPE": filesystem, "UUID": uuid}},
		})
	}
	first := state("A", "EFI", "U", "ext4")
	if diff := cmp.Diff(first, state("B", "EFI", "V", "ext4")); diff != "" {
		t.Errorf("random values (-want +got):\n%s", diff)
	}
	for name, other := range map[string]*diskState{
		"no id": state("", "EFI", "U", "ext4"), "type": state("A", "BIOS", "U", "ext4"),
		"no uuid": state("A", "EFI", "", "ext4"), "file system": state("A", "EFI", "U", "xfs"),
		"GPT of an image":                           state(diskUUID, "EFI", "U", "ext4"),
		"partition or file system of an image":      state("A", "EFI", rootUUID, "ext4"),
		"UUID of a config drive, which is its date": state("A", "EFI", "U", "iso9660"),
	} {
		if cmp.Equal(first, other) {
			t.Errorf("%s: no difference", name)
		}
	}
}
