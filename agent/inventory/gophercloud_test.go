package inventory

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	gophercloud "github.com/gophercloud/gophercloud/v2/openstack/baremetal/inventory"

	"ironroot/agent/inventory/machinetest"
)

// The inventory of each recorded machine decodes into gophercloud's types, which Metal3 uses, and every value that
// these types have equals the inventory's. TestMachines compares the golden files with what the agent sends.
//
// Parity: T7
func TestGophercloud(t *testing.T) {
	found := map[string]bool{} // paths of values that some machine has
	for _, name := range machinetest.Names(t) {
		ours, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var theirs gophercloud.InventoryType
		if err := json.Unmarshal(ours, &theirs); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		got, want := decoded(t, text), decoded(t, ours)
		if diff := cmp.Diff(common(found, "", got, want), got); diff != "" {
			t.Errorf("%s: the decoded inventory differs (-want +got):\n%s", name, diff)
		}
	}
	for _, path := range []string{
		".hostname", ".boot.current_boot_mode", ".boot.pxe_interface", ".cpu.architecture", ".cpu.count",
		".cpu.flags[]", ".cpu.frequency", ".cpu.model_name", ".disks[].by_path", ".disks[].hctl", ".disks[].model",
		".disks[].name", ".disks[].rotational", ".disks[].serial", ".disks[].size", ".disks[].vendor", ".disks[].wwn",
		".disks[].wwn_with_extension", ".interfaces[].has_carrier", ".interfaces[].mac_address", ".interfaces[].name",
		".interfaces[].pci_address", ".interfaces[].product", ".interfaces[].speed_mbps", ".interfaces[].vendor",
		".memory.physical_mb", ".memory.total", ".system_vendor.firmware.build_date", ".system_vendor.firmware.vendor",
		".system_vendor.firmware.version", ".system_vendor.manufacturer", ".system_vendor.product_name",
		".system_vendor.serial_number",
	} {
		if !found[path] {
			t.Errorf("no machine has a value of %s", path)
		}
	}
}

// common returns the part of ours, a decoded JSON value, whose keys theirs has as well. Null in ours is the zero value
// of the type in theirs, and a string that theirs has as a number is that number. It adds the paths of other values to
// found.
func common(found map[string]bool, path string, theirs, ours any) any {
	switch theirs := theirs.(type) {
	case map[string]any:
		result := map[string]any{}
		fields, _ := ours.(map[string]any) // nil if ours is of another type, which the comparison shows
		for key, value := range theirs {
			if mine, ok := fields[key]; ok {
				result[key] = common(found, path+"."+key, value, mine)
			}
		}
		return result
	case []any:
		list, _ := ours.([]any)
		if len(list) != len(theirs) {
			return ours
		}
		result := make([]any, len(list))
		for i := range list {
			result[i] = common(found, path+"[]", theirs[i], list[i])
		}
		return result
	}
	if _, number := theirs.(json.Number); number {
		switch value := ours.(type) {
		case nil:
			return json.Number("0")
		case string: // the frequency, as ironic-python-agent sends it
			ours = json.Number(value)
		}
	}
	if ours == nil && theirs != nil {
		return reflect.Zero(reflect.TypeOf(theirs)).Interface()
	}
	found[path] = found[path] || ours != nil && !reflect.ValueOf(ours).IsZero()
	return ours
}
