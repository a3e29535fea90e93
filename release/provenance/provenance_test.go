package provenance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example is the statement of testdata/example.json, which was written by hand after the specifications.
func example(t testing.TB) []byte {
	t.Helper()
	digest := map[string]string{"sha256": strings.Repeat("a", 64)}
	text, err := Encode([]Resource{{Name: "a.kernel", Digest: digest}},
		Definition{
			Command: "image", Parameters: map[string]any{"architecture": "amd64"},
			Internal: map[string]any{"go": "go1"},
			Dependencies: []Resource{
				{URI: "pkg:golang/example.com/m@v1", Digest: map[string]string{"dirHash": "cc"}},
				{Name: "source", Digest: map[string]string{"gitCommit": "dd"}},
				{URI: "pkg:deb/debian/x@1?arch=all&distro=trixie", Digest: map[string]string{"sha256": "bb"}},
			},
		}, "1.0")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEncode(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "example.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(golden, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(example(t), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statement (-want +got):\n%s", diff)
	}
	if text := string(example(t)); !strings.Contains(text, `"pkg:deb/debian/x@1?arch=all&distro=trixie"`) {
		t.Errorf("got %s, want package URLs without escapes", text)
	}
	if text, err := Encode(nil, Definition{Parameters: map[string]any{"function": func() {}}}, "1.0"); err == nil {
		t.Errorf("parameter that JSON lacks: got %s, want an error", text)
	}
}

func TestSubjects(t *testing.T) {
	valid := string(example(t))
	got, err := Subjects([]byte(valid))
	if err != nil || got["a.kernel"] != strings.Repeat("a", 64) {
		t.Errorf("got %v and error %v, want the SHA-256 of a.kernel", got, err)
	}
	for want, text := range map[string]string{
		"statement":      strings.Replace(valid, "Statement/v1", "Statement/v0.1", 1),
		"slsa.dev":       strings.Replace(valid, "provenance/v1", "provenance/v0.2", 1),
		"unexpected end": valid[:len(valid)/2],
		"at most":        valid + strings.Repeat(" ", maxStatement),
		"twice":          strings.Replace(valid, `"subject": [`, `"subject": [{"name": "a.kernel"},`, 1),
	} {
		if _, err := Subjects([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

func FuzzSubjects(f *testing.F) {
	f.Add(example(f))
	f.Add([]byte(`{"subject":[{"name":"a.kernel"}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = Subjects(text) })
}
