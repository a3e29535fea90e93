//go:build linux

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ironroot/internal/test/testenv"
)

// recording is a file of testdata/ipa: what IPA does in the scenarios of a group.
type recording struct {
	// Versions of the kernel and of the packages of Debian that decide the behaviour.
	Versions map[string]string `json:"versions"`
	// Machine is group.machineDigest when the scenarios were recorded.
	Machine string `json:"machine"`
	// Digests of the scenarios when they were recorded.
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

// comparison returns what is compared of an observation, in the types of package json. The content of a disk becomes
// an object whose keys are the numbers of the chunks, so that each chunk is compared alone. The normalisers of requests
// and replies are applied again, because a recording can be older than they are. normaliseDisk is applied only before
// recording: a change of it requires new recordings.
func comparison(o observation) any {
	o.Ironic = normaliseRequests(o.Ironic)
	o.Agent = slices.Clone(o.Agent)
	for i := range o.Agent {
		o.Agent[i] = normaliseExchange(o.Agent[i])
	}
	value := plain(o)
	each(value, func(fields object) {
		spans, ok := fields["content"].([]any)
		if !ok {
			return
		}
		chunks := object{}
		for _, part := range spans {
			first, count := number(part, "offset")/chunk, number(part, "length")/chunk
			for i := range int(math.Ceil(count)) {
				chunks[fmt.Sprint(int(first)+i)] = part.(object)["what"]
			}
		}
		fields["content"] = chunks
	})
	return value
}
