package facts

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/inventory"
)

// found contains the guest's result files by name: the agent's data in ours.json, and the output of the tools.
type found map[string][]byte

// ours contains the data that the agent sends to Ironic.
type ours struct {
	Inventory     inventory.Inventory
	RootDisk      *inventory.Disk `json:"root_disk"`
	BootInterface *string         `json:"boot_interface"`
	PCI           []pciDevice     `json:"pci_devices"`
	USB           []usbDevice     `json:"usb_devices"`
	NUMA          numaTopology    `json:"numa_topology"`
	DMI           map[string]any
	Data          [][4]any
	Error         *string
}

func (f found) ours(t *testing.T) ours {
	t.Helper()
	var o ours
	f.decode(t, "ours.json", &o)
	if o.Error != nil {
		t.Errorf("got the error %q, want none", *o.Error)
	}
	return o
}

// decode decodes a result in JSON.
func (f found) decode(t *testing.T, name string, into any) {
	t.Helper()
	if err := json.Unmarshal(f[name], into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// text returns a result of one line.
func (f found) text(name string) string { return strings.TrimSpace(string(f[name])) }

// blocks parses a result of paragraphs with lines "key: value".
func (f found) blocks(name string) []map[string]string {
	var list []map[string]string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(f[name])), "\n\n") {
		block := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if key, value, ok := strings.Cut(line, ":"); ok {
				block[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
		list = append(list, block)
	}
	return list
}

// sections parses a result whose sections start with a line "== name".
func (f found) sections(name string) map[string]string {
	parts := map[string]string{}
	for part := range strings.SplitSeq("\n"+string(f[name]), "\n== ") {
		title, body, _ := strings.Cut(part, "\n")
		parts[strings.TrimSpace(title)] = body
	}
	return parts
}

// same fails the test if two descriptions of the same thing differ.
func same(t *testing.T, what string, theirs, ours any) {
	t.Helper()
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("%s: the tool's word (-) is not ours (+):\n%s", what, diff)
	}
}

// lshw is a node of lshw's tree.
type lshw struct {
	ID, Class, Product, Vendor, Serial, Handle, BusInfo string
	LogicalName                                         any
	Size, Capacity                                      int64
	Configuration                                       map[string]string
	Children                                            []lshw
}

// all returns a node and all nodes below it.
func (n lshw) all() []lshw {
	list := []lshw{n}
	for _, child := range n.Children {
		list = append(list, child.all()...)
	}
	return list
}

func (f found) lshw(t *testing.T) lshw {
	t.Helper()
	var root lshw
	f.decode(t, "lshw.json", &root)
	return root
}

// text returns the string, or "" for null.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
