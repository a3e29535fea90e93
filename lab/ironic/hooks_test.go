//go:build linux

package ironic

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/mdlayher/lldp"
	"github.com/mdlayher/packet"

	"ironroot/agent/inspection"
)

// everyHook makes Ironic run every agent inspection hook that uses in-band data, and the ramdisk every collector that
// they require. Ironic creates ports for all interfaces, so one of the ports is new.
var everyHook = `
[inspector]
hooks = ramdisk-error,validate-interfaces,ports,architecture,memory,pci-devices,parse-lldp,boot-mode,` +
	`cpu-capabilities,root-device,local-link-connection,extra-hardware,physical-network,accelerators
known_accelerators = ` + inside + `/accelerators.yaml
add_ports = all
pci_device_alias = {"vendor_id": "8086", "product_id": "29c0", "name": "mch_q35"}
pci_device_alias = {"vendor_id": "1af4", "product_id": "1000", "name": "virtio_net"}
pci_device_alias = {"vendor_id": "1af4", "product_id": "ffff", "name": "not_there"}
physical_network_cidr_map = 172.30.0.0/24:lab
extra_kernel_params = ipa-lldp-timeout=10 ` +
	`ipa-inspection-collectors=` + strings.Join(inspection.CollectorNames(), ",") + "\n"

// accelerators describes the machine's network cards as accelerators, for Ironic's hook.
const accelerators = `pci_devices:
- {vendor_id: "1af4", device_id: "1000", type: NIC, device_info: virtio}
- {vendor_id: "10de", device_id: "1eb8", type: GPU, device_info: not there}
`

// leaf returns the LLDP frame of a switch port: chassis ID (MAC address), port ID (interface name), system name,
// untagged VLAN 54.
func leaf(port string) []byte {
	frame, err := hex.DecodeString("0180c200000e02000000000188cc" + "020704020000000001" +
		"0407055377702f302f" + "06020078" +
		"0a056c65616631" + "fe060080c2010036" + "0000")
	if err != nil {
		panic(err)
	}
	return []byte(strings.Replace(string(frame), "Swp/0/", port, 1)) // the same length
}

// speak sends a frame to one of the machine's cards twice per second until the test ends.
func speak(t *testing.T, n *Node, card int, frame []byte) {
	t.Helper()
	var conn *packet.Conn
	err := n.ironic.ns.Do(func() error {
		tap, err := net.InterfaceByName(n.taps[card])
		if err == nil {
			conn, err = packet.Listen(tap, packet.Raw, int(lldp.EtherType), nil)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(500 * time.Millisecond); ctx.Err() == nil; {
			// The write can fail while the machine is off.
			_, _ = conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close()
	})
}

// checkHooks checks the results of Ironic's hooks. The machine has two cards, of which Ironic did not know the
// second; the node had no properties except root device hints.
func checkHooks(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	var node struct {
		Properties map[string]any
		LastError  *string `json:"last_error"`
	}
	if err := n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID, nil, &node); err != nil {
		t.Fatal(err)
	}
	capabilities, _ := node.Properties["capabilities"].(string)
	delete(node.Properties, "capabilities")
	checkAccelerators(t, node.Properties["accelerators"])
	delete(node.Properties, "accelerators")
	delete(node.Properties, "vendor") // Ironic adds it with a later query of the power state, at any time
	want := map[string]any{
		"cpu_arch":    "x86_64",
		"memory_mb":   float64(memory >> 20),
		"local_gb":    float64(6), // the second disk, which matches the hints, without 1 GiB for other partitions
		"root_device": map[string]any{"serial": "DISK1"},
	}
	if n.ironic.options.Suite == Trixie {
		want["local_gb"] = "6" // Ironic 29.0 stores text
	}
	if diff := cmp.Diff(want, node.Properties); diff != "" {
		t.Errorf("properties differ (-want +got):\n%s", diff)
	}
	for _, want := range []string{"boot_mode:uefi", "mch_q35:1", "virtio_net:2", "cpu_aes:true", "cpu_hugepages:true"} {
		if !strings.Contains(","+capabilities+",", ","+want+",") {
			t.Errorf("capabilities: got %s, want %s in it", capabilities, want)
		}
	}
	if strings.Contains(capabilities, "not_there") {
		t.Errorf("capabilities: got %s, want no device that is not there", capabilities)
	}
	checkPorts(t, ctx, n)
	checkPluginData(t, ctx, n)
	checkGophercloud(t, ctx, n)
	logs, err := filepath.Glob(n.ironic.path("deploylogs/" + n.UUID + "_*_inspect_*.tar.gz"))
	if err != nil || len(logs) != 1 {
		t.Errorf("stored logs of the inspection: got %v, %v, want one archive", logs, err)
	}
}

// port is a port as reported by Ironic.
type port struct {
	Address    string            `json:"address"`
	PXE        bool              `json:"pxe_enabled"`
	Link       map[string]string `json:"local_link_connection"`
	PhysicalNw *string           `json:"physical_network"`
}

func checkPorts(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	var list struct{ Ports []port }
	if err := n.ironic.call(ctx, http.MethodGet, "/v1/ports/detail?node="+n.UUID, nil, &list); err != nil {
		t.Fatal(err)
	}
	network := "lab"
	link := func(port string) map[string]string {
		fields := map[string]string{"switch_id": "02:00:00:00:00:01", "switch_info": "leaf1", "port_id": port}
		if n.ironic.options.Suite == Trixie {
			delete(fields, "switch_info") // Ironic 29.0 does not set it
		}
		return fields
	}
	want := []port{
		{n.MACs[0], true, link("Eth1/1"), &network},
		{n.MACs[1], false, link("Eth1/2"), nil},
	}
	diff := cmp.Diff(want, list.Ports, cmpopts.SortSlices(func(a, b port) bool { return a.Address < b.Address }))
	if diff != "" {
		t.Errorf("ports differ (-want +got):\n%s", diff)
	}
}

// checkPluginData checks the data that Ironic stored with the inventory, including Ironic's additions.
func checkPluginData(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	inventory, plugin, err := n.Inventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	for _, i := range inventory["interfaces"].([]any) {
		card := i.(map[string]any)
		if card["mac_address"] == n.MACs[0] || card["mac_address"] == n.MACs[1] {
			want[card["name"].(string)] = map[string]any{
				"switch_chassis_id":  "02:00:00:00:00:01",
				"switch_system_name": "leaf1", "switch_port_untagged_vlan_id": float64(54),
				"switch_port_id": map[any]string{n.MACs[0]: "Eth1/1", n.MACs[1]: "Eth1/2"}[card["mac_address"]],
			}
		}
	}
	if diff := cmp.Diff(want, plugin["parsed_lldp"]); diff != "" || len(want) != 2 {
		t.Errorf("parsed LLDP of two cards differs (-want +got):\n%s", diff)
	}
	if disk, _ := plugin["root_disk"].(map[string]any); disk["serial"] != "DISK1" {
		t.Errorf("root disk: got %v, want the one the hints name", plugin["root_disk"])
	}
	for _, key := range []string{
		"pci_devices", "numa_topology", "dmi", "usb_devices", "extra", "configuration", "boot_interface",
	} {
		empty := map[string]bool{"<nil>": true, "map[]": true, "[]": key != "usb_devices", "": true}
		if empty[fmt.Sprint(plugin[key])] {
			t.Errorf("%s: got %v, want something", key, plugin[key])
		}
	}
	extra, _ := plugin["extra"].(map[string]any)
	if system, _ := extra["system"].(map[string]any); system["product"] == nil {
		t.Errorf("extra: got %v, want the system's product", extra)
	}
	if plugin["error"] != nil {
		t.Errorf("error: got %v, want none", plugin["error"])
	}
}

// checkAccelerators checks that Ironic's hook has found both network cards by their ids, at their PCI addresses.
func checkAccelerators(t *testing.T, got any) {
	t.Helper()
	var want []any
	for _, address := range []string{"0000:00:05.0", "0000:00:06.0"} { // QEMU's, after the host bridge and the disks
		want = append(want, map[string]any{
			"vendor_id": "1af4", "device_id": "1000", "type": "NIC", "device_info": "virtio", "pci_address": address,
		})
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("accelerators of two cards differ (-want +got):\n%s", diff)
	}
}

// checkGophercloud checks that gophercloud, which Metal3 uses, decodes what Ironic stored: the parsed LLDP data, and
// the interface that the machine was booted from.
func checkGophercloud(t *testing.T, ctx context.Context, n *Node) {
	t.Helper()
	var stored nodes.InventoryData
	if err := n.ironic.call(ctx, http.MethodGet, "/v1/nodes/"+n.UUID+"/inventory", nil, &stored); err != nil {
		t.Fatal(err)
	}
	plugin, err := stored.PluginData.AsStandardData()
	if err != nil {
		t.Fatal(err)
	}
	for _, card := range stored.Inventory.Interfaces {
		port := map[string]string{n.MACs[0]: "Eth1/1", n.MACs[1]: "Eth1/2"}[card.MACAddress]
		if port == "" {
			continue
		}
		parsed, found := plugin.ParsedLLDP[card.Name], plugin.AllInterfaces[card.Name]
		if parsed["switch_port_id"] != port || parsed["switch_system_name"] != "leaf1" ||
			found.PXEEnabled != (card.MACAddress == n.MACs[0]) || card.PCIAddress == "" {
			t.Errorf("card %s: got LLDP %v, PXE %t and address %q, want port %s", card.Name, parsed, found.PXEEnabled,
				card.PCIAddress, port)
		}
	}
	if len(plugin.ParsedLLDP) != 2 {
		t.Errorf("parsed LLDP: got %v, want that of two cards", plugin.ParsedLLDP)
	}
}
