//go:build linux

package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"ironroot/internal/testenv"
)

// recording is a file of testdata/ipa: what IPA does in the scenarios of a group.
type recording struct {
	// Versions are those of the packages of Debian that decide the behaviour, and of the kernel.
	Versions map[string]string `json:"versions"`
	// Digests are those of the scenarios when they were recorded.
	Digests   map[string]string      `json:"digests"`
	Scenarios map[string]observation `json:"scenarios"`
}

func recordingFile(t testing.TB, group string) string {
	return filepath.Join(testenv.Top(t), "testdata", "ipa", group+".json")
}

func readRecording(t testing.TB, group string) recording {
	t.Helper()
	var r recording
	data, err := os.ReadFile(recordingFile(t, group))
	if os.IsNotExist(err) {
		return recording{}
	}
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatalf("%s: %v", group, err)
	}
	return r
}

func (r recording) write(t testing.TB, group string) {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(r); err != nil {
		t.Fatal(err)
	}
	file := recordingFile(t, group)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
