//go:build linux

package conformance

import (
	"bytes"
	"os"
	"path/filepath"
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

func TestNormaliseRequests(t *testing.T) {
	heartbeat := func(certificate, version string) seen {
		return seen{Path: "/v1/heartbeat/x", Body: object{
			"agent_verify_ca": certificate, "agent_version": version,
		}}
	}
	const pem = "-----BEGIN CERTIFICATE-----\n"
	first := heartbeat(pem+"A", "1")
	for _, tt := range []struct {
		name   string
		second seen
		want   int // requests that remain
	}{
		{"repetition", heartbeat(pem+"A", "1"), 1},
		{"another certificate and version", heartbeat(pem+"B", "2"), 1},
		{"no certificate", heartbeat("", "1"), 2},
		{"no version", heartbeat(pem+"A", ""), 2},
		{"another path", seen{Path: "/v1/lookup"}, 2},
	} {
		if got := normaliseRequests([]seen{first, tt.second}); len(got) != tt.want {
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
		"UUID of a config drive, which is its date": state("A", "EFI", "U", "iso9660"),
	} {
		if cmp.Equal(first, other) {
			t.Errorf("%s: no difference", name)
		}
	}
}

// describeContent lists chunks of a disk, and finds planted data at any place.
func TestDescribeContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	data := make([]byte, 8*mib)
	copy(data[mib:], bytes.Repeat([]byte(planted), mib/len(planted)))
	copy(data[2*mib:], bytes.Repeat([]byte(planted), mib/len(planted)))
	data[4*mib+77] = 1
	copy(data[5*mib:], planted)
	data[5*mib+100] = 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := describeDisk(path, 512, []span{{Offset: mib, Length: 10}})
	if err != nil {
		t.Fatal(err)
	}
	want := []span{{mib, 2 * mib, "planted"}, {4 * mib, mib, "data"}, {5 * mib, mib, "planted, data"}}
	if diff := cmp.Diff(want, state.Content); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if len(state.Ranges) != 1 || state.Ranges[0].What == "" || state.Table != nil {
		t.Errorf("got %+v, want the digest of one range and no table", state)
	}
}

func TestDifferences(t *testing.T) {
	for _, tt := range []struct {
		want, got string
		paths     []string
	}{
		{`{"a": [1, {"b": null}]}`, `{"a": [1, {"b": null}]}`, nil},
		{`{"a": 1, "b": 2}`, `{"a": 2, "c": 2}`, []string{"/a", "/b", "/c"}},
		{`{"a": null}`, `{}`, []string{"/a"}},
		{`[1, 2]`, `[1, 3]`, []string{"/1"}},
		{`{"a": [1]}`, `{"a": [1, 2]}`, []string{"/a"}},
		{`{"a": {}}`, `{"a": []}`, []string{"/a"}},
	} {
		var paths []string
		for _, d := range differences("", parse(tt.want), parse(tt.got)) {
			paths = append(paths, d.path)
		}
		if diff := cmp.Diff(tt.paths, paths); diff != "" {
			t.Errorf("%s and %s (-want +got):\n%s", tt.want, tt.got, diff)
		}
	}
}
