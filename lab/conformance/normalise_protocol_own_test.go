//go:build linux

package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAllowedMethods(t *testing.T) {
	allowed := func(methods string) string {
		header := map[string]string{"Allow": methods}
		allowedMethods(header)
		return header["Allow"]
	}
	if allowed("GET, HEAD") != allowed("HEAD, GET") {
		t.Error("another order differs")
	}
	if allowed("GET, HEAD") == allowed("GET") {
		t.Error("a missing method does not differ")
	}
}

func TestNormaliseSteps(t *testing.T) {
	steps := func(list string) string { return `{"command_result": {"clean_steps": {"M": [` + list + `]}}}` }
	const a, b = `{"step": "a", "priority": 1}`, `{"step": "b", "priority": 2}`
	argument := func(text, required string) string {
		return steps(`{"step": "a", "argsinfo": {"x": {"description": "` + text + `", "required": ` + required + `}}}`)
	}
	for _, tt := range []struct {
		name, a, b string
		want       bool
	}{
		{"another order", steps(a + "," + b), steps(b + "," + a), true},
		{"another priority", steps(a), steps(`{"step": "a", "priority": 2}`), false},
		{"a missing step", steps(a + "," + b), steps(a), false},
		{"another description", argument("x", "true"), argument("y", "true"), true},
		{"no description", argument("x", "true"), argument("", "true"), false},
		{"another argument", argument("x", "true"), argument("x", "false"), false},
	} {
		if got := equal(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: equal is %v, want %v", tt.name, got, tt.want)
		}
	}
}

// archive returns an archive with files of the given names and content.
func archive(t *testing.T, content string, names ...string) string {
	t.Helper()
	var data bytes.Buffer
	packed := gzip.NewWriter(&data)
	w := tar.NewWriter(packed)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(data.Bytes())
}

func TestArchiveNames(t *testing.T) {
	names := func(text string) any {
		fields := object{"logs": text}
		archiveNames(fields, "logs")
		return fields["logs"]
	}
	first := names(archive(t, "x", "a", "b"))
	if diff := cmp.Diff(first, names(archive(t, "y", "b", "a"))); diff != "" {
		t.Errorf("other content in another order (-want +got):\n%s", diff)
	}
	for what, other := range map[string]string{"a missing file": archive(t, "x", "a"), "a text": "x", "nothing": ""} {
		if cmp.Equal(first, names(other)) {
			t.Errorf("%s: no difference", what)
		}
	}
}

func TestShapeOf(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		want       bool
	}{
		{"values", `{"a": "x", "b": [1, 2]}`, `{"a": "y", "b": [3]}`, true},
		{"a missing key", `{"a": "x", "b": 1}`, `{"a": "x"}`, false},
		{"another type", `{"a": "x"}`, `{"a": 1}`, false},
		{"null", `{"a": "x"}`, `{"a": null}`, false},
		{"keys in a list", `[{"a": 1}]`, `[{"b": 1}]`, false},
		{"an empty list", `[1]`, `[]`, false},
		{"a shape", `[1, "x"]`, `["<float64>"]`, true},
	} {
		if got := cmp.Equal(shapeOf(parse(tt.a)), shapeOf(parse(tt.b))); got != tt.want {
			t.Errorf("%s: equal is %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestSortedDevices(t *testing.T) {
	sorted := func(text string) any {
		fields := object{"pci_devices": parse(text)}
		sortedDevices(fields)
		return fields
	}
	first := sorted(`[{"bus": "1", "class": "a"}, {"bus": "2"}]`)
	if !cmp.Equal(first, sorted(`[{"bus": "2"}, {"bus": "1", "class": "a"}]`)) {
		t.Error("another order differs")
	}
	for _, other := range []string{
		`[{"bus": "1", "class": "b"}, {"bus": "2"}]`, `[{"bus": "1", "class": "a"}]`,
		`"x"`,
	} {
		if cmp.Equal(first, sorted(other)) {
			t.Errorf("%s: no difference", other)
		}
	}
}

func TestRootOnce(t *testing.T) {
	root, lookup := ironicRequest{Method: "GET", Path: "/"}, ironicRequest{Method: "GET", Path: "/v1/lookup"}
	got := rootOnce([]ironicRequest{
		root, lookup, root, {Method: "GET", Path: "/v1"}, {Method: "POST", Path: "/"}, lookup,
	})
	want := []ironicRequest{root, lookup, {Method: "POST", Path: "/"}, lookup}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := rootOnce([]ironicRequest{lookup, root}); len(got) != 2 {
		t.Errorf("got %v, want both requests", got)
	}
}

func TestInspectionData(t *testing.T) {
	inspection := func(body object) ironicRequest {
		r := ironicRequest{Method: "POST", Path: "/v1/continue_inspection", Body: plain(body)}
		inspectionData(r)
		return r
	}
	first := inspection(object{"inventory": object{"hostname": "a"}, "error": "x"})
	if !cmp.Equal(first, inspection(object{"inventory": object{"hostname": "b"}, "error": "y"})) {
		t.Error("other values differ")
	}
	for name, other := range map[string]object{
		"no error": {"inventory": object{"hostname": "a"}, "error": nil}, "no inventory": {"error": "x"},
		"another key": {"inventory": object{"name": "a"}, "error": "x"},
	} {
		if cmp.Equal(first, inspection(other)) {
			t.Errorf("%s: no difference", name)
		}
	}
}

func TestHardwareFacts(t *testing.T) {
	facts := func(text string) any {
		fields := object{"data": parse(text)}
		hardwareFacts(fields)
		return fields["data"]
	}
	first := facts(`[["cpu", "physical", "number", 1], ["cpu", "logical", "number", 2]]`)
	second := facts(`[["cpu", "logical", "number", 2], ["cpu", "physical", "number", 1]]`)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for name, other := range map[string]string{
		"type":    `[["cpu", "physical", "number", "1"], ["cpu", "logical", "number", 2]]`,
		"missing": `[["cpu", "physical", "number", 1]]`, "no list": `{}`,
		"no fact": `[["cpu", "physical", "number", 1], ["cpu", "logical", "number", 2], ["more"]]`,
	} {
		if cmp.Equal(first, facts(other)) {
			t.Errorf("%s: no difference", name)
		}
	}
}

func TestNUMATopology(t *testing.T) {
	topology := func(cpus, size string) any {
		fields := object{"numa_topology": parse(`{"cpus": ` + cpus + `, "ram": [{"size_kb": ` + size + `}]}`)}
		numaTopology(fields)
		return fields
	}
	first := topology(`[{"cpu": 1}, {"cpu": 0, "numa_node": 0}]`, "2981748")
	if !cmp.Equal(first, topology(`[{"cpu": 0, "numa_node": 0}, {"cpu": 1}]`, "2981740")) {
		t.Error("another order and some kilobytes differ")
	}
	for _, other := range []any{
		topology(`[{"cpu": 0, "numa_node": 1}, {"cpu": 1}]`, "2981748"), topology(`[{"cpu": 0, "numa_node": 0}]`,
			"2981748"),
		topology(`[{"cpu": 0, "numa_node": 0}, {"cpu": 1}]`, "1981748"),
		topology(`[{"cpu": 0, "numa_node": 0}, {"cpu": 1}]`, "null"),
	} {
		if cmp.Equal(first, other) {
			t.Errorf("%v: no difference", other)
		}
	}
}
