//go:build linux

package conformance

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/lab/qemu"
)

// markerArea is the size of the start of a disk that can contain the marker of a scenario.
const markerArea = mib

// clearMarked clears the start of all disks, if a scenario has a marker.
func (m *machine) clearMarked(marker string) error {
	if marker == "" {
		return nil
	}
	for _, d := range m.disks {
		if err := write(d.File, 0, make([]byte, markerArea)); err != nil {
			return err
		}
	}
	return nil
}

// marked returns the serial numbers of the disks whose start contains a marker, sorted.
func (m *machine) marked(marker string) ([]string, error) {
	if marker == "" {
		return nil, nil
	}
	var found []string
	start := make([]byte, markerArea)
	for _, serial := range slices.Sorted(maps.Keys(m.disks)) {
		f, err := os.Open(m.disks[serial].File)
		if err != nil {
			return nil, err
		}
		n, err := io.ReadFull(f, start)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if bytes.Contains(start[:n], []byte(marker)) {
			found = append(found, serial)
		}
	}
	return found, nil
}

func TestMarked(t *testing.T) {
	m := &machine{disks: map[string]qemu.Disk{}}
	for serial, text := range map[string]string{"B": "marker", "A": "the marker", "C": "none"} {
		data := make([]byte, markerArea+100)
		copy(data[1000:], text)
		copy(data[markerArea+1:], "marker") // beyond the start
		path := filepath.Join(t.TempDir(), serial)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		m.disks[serial] = qemu.Disk{File: path}
	}
	got, err := m.marked("marker")
	if diff := cmp.Diff([]string{"A", "B"}, got); err != nil || diff != "" {
		t.Errorf("marked: %v (-want +got):\n%s", err, diff)
	}
	if err := m.clearMarked("marker"); err != nil {
		t.Fatal(err)
	}
	if got, err := m.marked("marker"); err != nil || got != nil {
		t.Errorf("cleared: got %v, %v, want none", got, err)
	}
}
