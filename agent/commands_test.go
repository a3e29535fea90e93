package agent

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/test/testenv"
)

// Parity: A12
func TestVersionMismatch(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, func(o *Options) { o.Destructive = true }, "--api-url="+ironic.URL)
	r.beat(ironic)
	got := r.run("clean.execute_clean_step",
		`{"step":{"step":"no_such_step","interface":"deploy"},"node":{"uuid":"`+nodeUUID+`"},`+
			`"ports":[],"clean_version":{"generic_hardware_manager":"0.1"}}`)
	if got.Status != "CLEAN_VERSION_MISMATCH" || got.Error["type"] != "VersionMismatch" || got.Error["code"] != 409.0 {
		t.Errorf("clean step of another version: got %s %v, want CLEAN_VERSION_MISMATCH", got.Status, got.Error)
	}
}

// unpack returns the members of the archive that log.collect_system_logs returned.
func unpack(t *testing.T, r record) map[string]string {
	t.Helper()
	var result struct {
		Logs string `json:"system_logs"`
	}
	if err := json.Unmarshal(r.Result, &result); err != nil || r.Status != "SUCCEEDED" {
		t.Fatalf("system logs: got %s %v %v", r.Status, r.Error, err)
	}
	data, err := base64.StdEncoding.DecodeString(result.Logs)
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Untar(t, data)
}

// The log archive has a member for each program whose output ironic-python-agent collects, the properties of every
// disk, and the configured files. The member errors names what the machine does not have.
//
// Parity: E11
func TestCollectSystemLogs(t *testing.T) {
	ironic := newIronic(t)
	extra := filepath.Join(t.TempDir(), "agent.log")
	if err := os.WriteFile(extra, []byte("from the configured file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startAgent(t, nil, "--api-url="+ironic.URL, "--log_file="+extra)
	r.beat(ironic)
	members := unpack(t, r.run("log.collect_system_logs", "{}"))
	for name, want := range map[string]string{
		"journal": "node found", "df": "Filesystem", "ip_addr": "inet 127.0.0.1/8", "lsblk": "KNAME", "lsblk-full": "",
		"mount": " on /proc type proc ", "ps": "PPID", "lshw": `"interfaces"`, "parted": "",
		"multipath": "", extra[1:]: "from the configured file",
	} {
		if text, ok := members[name]; !ok || !strings.Contains(text, want) {
			t.Errorf("member %s: got %v %q, want %q in it", name, ok, text, want)
		}
	}
	// The errors name what this machine does not have, or does not show to this user.
	maybe := []string{"dmesg", "mdstat", "efibootmgr"}
	if os.Geteuid() != 0 { // the kernel lists no rules
		maybe = append(maybe, "iptables")
	} else if members["iptables"] == "" {
		t.Error("member iptables is empty, want rules or a note that there are none")
	}
	for _, name := range maybe {
		if _, ok := members[name]; !ok && !strings.Contains(members["errors"], name+": ") {
			t.Errorf("member %s is neither present nor in the errors:\n%s", name, members["errors"])
		}
	}

	r = startAgent(t, func(o *Options) { o.System = machinetest.System(t, "dell-r640") }, "--api-url="+ironic.URL)
	r.beat(ironic)
	members = unpack(t, r.run("log.collect_system_logs", "{}"))
	properties := map[string]string{}
	if err := json.Unmarshal([]byte(members["udev/sda"]), &properties); err != nil {
		t.Fatalf("member udev/sda %q: %v", members["udev/sda"], err)
	}
	for _, name := range []string{"DEVNAME", "ID_MODEL", "ID_SERIAL_SHORT", "ID_WWN"} {
		if properties[name] == "" {
			t.Errorf("udev/sda: got no %s in %v", name, properties)
		}
	}
	if got := properties["DEVNAME"]; got != "/dev/sda" {
		t.Errorf("udev/sda: got DEVNAME %q, want /dev/sda", got)
	}
}

// Parity: E9
func TestPoll(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	r.beat(ironic)
	got := r.run("poll.get_hardware_info", "{}")
	var inventory struct {
		Interfaces []struct {
			Name string
			MAC  string `json:"mac_address"`
		}
		Memory struct{ Total int64 }
		CPU    struct{ Count int }
	}
	if err := json.Unmarshal(got.Result, &inventory); err != nil {
		t.Fatal(err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(got.Result, &keys); err != nil {
		t.Fatal(err)
	}
	delete(keys, "bmc_mac") // present only if the BMC has one
	want := []string{
		"bmc_address", "bmc_v6address", "boot", "cpu", "disks", "hostname", "interfaces", "memory", "system_vendor",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(keys))); diff != "" {
		t.Errorf("keys of the inventory (-want +got):\n%s", diff)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range inventory.Interfaces {
		if !slices.ContainsFunc(links,
			func(l net.Interface) bool { return l.Name == i.Name && l.HardwareAddr.String() == i.MAC }) {
			t.Errorf("interface %s %s: not one of this machine's %v", i.Name, i.MAC, links)
		}
	}
	if inventory.Memory.Total <= 0 || inventory.CPU.Count <= 0 {
		t.Errorf("inventory: got %s, want memory and processors", got.Result)
	}
	code, body := r.post("poll.set_node_info", `{"node_info":{"node":{"uuid":"x"}}}`)
	if code != 400 || !strings.Contains(body, "Invalid command: Node lookup data can only be set when") {
		t.Errorf("set_node_info with an Ironic: got %d %s, want 400", code, body)
	}
}

// Parity: E13
func TestFlow(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	r.beat(ironic)
	got := r.run("flow.start_flow",
		`{"flow":[{"standby.get_partition_uuids":{},"poll.get_hardware_info":{}},{"log.collect_system_logs":{}}]}`)
	if got.Status != "SUCCEEDED" || string(got.Result) != "null" {
		t.Errorf("flow: got %s %v %s, want SUCCEEDED null", got.Status, got.Error, got.Result)
	}
	log := r.console.String()
	at := -1
	for _, name := range []string{"standby.get_partition_uuids", "poll.get_hardware_info", "log.collect_system_logs"} {
		next := strings.Index(log, "flow: command started command="+name)
		if next <= at {
			t.Errorf("%s did not run in order:\n%s", name, log)
		}
		at = next
	}
	if all := r.list(); len(all) != 1 || all[0].Name != "start_flow" {
		t.Errorf("records: got %v, want only start_flow, not the commands of the flow", all)
	}
	code, body := r.post("flow.start_flow", `{"flow":[{"poll.no_such":{}}]}`)
	if code != 400 || !strings.Contains(body, "Unknown command: no_such") {
		t.Errorf("unknown method: got %d %s, want 400", code, body)
	}
	got = r.run("flow.start_flow", `{"flow":[{"nowhere.x":{}}]}`)
	if got.Status != "FAILED" || got.Error["type"] != "RequestedObjectNotFoundError" || got.Error["code"] != 404.0 {
		t.Errorf("unknown extension: got %s %v, want FAILED RequestedObjectNotFoundError 404", got.Status, got.Error)
	}
	got = r.run("flow.start_flow", `{"flow":[{"poll.get_hardware_info":{"bad":1}},{"log.collect_system_logs":{}}]}`)
	if got.Status != "FAILED" ||
		!strings.HasPrefix(got.Error["details"].(string), "poll.get_hardware_info was failed") {
		t.Errorf("failing inner command: got %s %v, want FAILED", got.Status, got.Error)
	}
	if n := strings.Count(r.console.String(), "flow: command started command=log.collect"); n != 1 {
		t.Errorf("log.collect_system_logs ran %d times, want 1: a flow ends at the first failure", n)
	}
}
