package node

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzNode decodes objects that a server sends in place of a node. Whatever their fields are, a node has a uuid, is
// encoded as it was received, and no accessor panics.
func FuzzNode(f *testing.F) {
	f.Add([]byte(`{"uuid": "u", "name": "n", "properties": {"root_device": {"name": "/dev/sda"}, ` +
		`"skip_block_devices": [{"serial": "1"}]}, "raid_config": {"logical_disks": [{"size_gb": 1}]}}`))
	f.Add([]byte(`{"uuid": 1, "instance_info": [], "properties": 7, "raid_config": "x", "driver_info": null}`))
	f.Add([]byte(`{"uuid": "u", "properties": {"root_device": [], "skip_block_devices": [null]}}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, decode := range []func([]byte) (*Node, error){FromJSON, FromStep} {
			n, err := decode(data)
			if err != nil {
				continue
			}
			n.HasRootDeviceHints()
			skips, err := n.SkipBlockDevices()
			if list, ok := n.Properties()["skip_block_devices"].([]any); ok && err == nil && len(skips) != len(list) {
				t.Errorf("got %d entries of skip_block_devices, want %d or an error", len(skips), len(list))
			}
			n.Name()
			n.InstanceInfo()
			n.DriverInfo()
			n.DriverInternalInfo()
			text, err := json.Marshal(n)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			again, err := decode(text)
			if err != nil {
				t.Fatalf("decode again: %v", err)
			}
			if diff := cmp.Diff(n.Raw(), again.Raw()); diff != "" || again.UUID() != n.UUID() {
				t.Errorf("uuid %q, decoded again %q (-first +again):\n%s", n.UUID(), again.UUID(), diff)
			}
		}
	})
}
