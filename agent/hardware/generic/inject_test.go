package generic

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware"
	"ironroot/internal/test/raidtest"
)

// The step inject_files assembles all arrays of raid_config for a file on an array, and stops them.
func TestInjectFilesAssembles(t *testing.T) {
	disks, fields := volumeDisks(t, "true", "")
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.kernel = kernel
	for device, want := range map[string][]string{"/dev/md0p7": {"/dev/md0", "/dev/md1"}, "/dev/sdx": nil} {
		kernel.Assembled, kernel.Stopped = nil, nil
		files := json.RawMessage(`[{"path": "/etc/new", "partition": "` + device + `", "content": ""}]`)
		_, err := stepOf(t, m, hardware.Deploy, "inject_files")(t.Context(), hardware.Call{
			Node: nodeWith(t, fields), Args: map[string]json.RawMessage{"files": files},
		})
		if typeOf(err) != "DeviceNotFound" {
			t.Errorf("%s: got %v, want a DeviceNotFound", device, err)
		}
		if diff := cmp.Diff([][]string{want, want}, [][]string{kernel.Assembled, kernel.Stopped}); diff != "" {
			t.Errorf("%s: arrays that were assembled and stopped differ (-want +got):\n%s", device, diff)
		}
	}
}
