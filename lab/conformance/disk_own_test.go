//go:build linux

package conformance

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
