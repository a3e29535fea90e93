package external

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/block"
)

// Properties contain no line breaks, which would begin other properties.
func TestProperties(t *testing.T) {
	want := []string{"ID_MODEL=a_b", "ID_BUS=nvme", "ID_PATH=pci-1"}
	got := propertiesOf(block.Device{
		Model: "a\nb", WWN: "x\nS:planted", Transport: "nvme", ByPath: "/dev/disk/by-path/pci-1",
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("properties differ (-want +got):\n%s", diff)
	}
}
