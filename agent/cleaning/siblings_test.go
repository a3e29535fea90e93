package cleaning

import (
	"context"
	"os"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/softraid"
	"ironroot/internal/test/raidtest"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

// threeNamespaces describes a machine with a SATA disk between the namespaces of an NVMe controller, and another
// controller with one namespace.
func threeNamespaces(t *testing.T) (sysfs.Root, []block.Device) {
	t.Helper()
	sys := sysfs.Root{Path: t.TempDir()}
	var disks []block.Device
	for _, name := range []string{"nvme70n1", "sdzz", "nvme70n2", "nvme70n3", "nvme71n1"} {
		disks = append(disks, block.Device{Name: name, Path: "/dev/" + name, Serial: name, Serials: []string{name}})
	}
	raidtest.ListDisks(t, sys, "2048", "sdzz")
	addNamespaces(t, sys, "nvme70n1", "nvme70n2", "nvme70n3", "nvme71n1")
	addController(t, sys, "nvme70", "nvme70n1", "nvme70n2", "nvme70n3")
	addController(t, sys, "nvme71", "nvme71n1")
	return sys, disks
}

// The other namespaces of a controller may be sanitized only if the step erases all of them, and all of each. They are
// erased in sequence, and all other disks in parallel.
func TestEraseSiblings(t *testing.T) {
	const alone = "nvme70n1: sdzz: nvme70n2: nvme70n3: nvme71n1:"
	for _, c := range []struct {
		name, node string
		without    string
		readOnly   bool
		want       string
	}{
		{
			name: "all",
			want: "nvme70n1:nvme70n2+nvme70n3 nvme70n2:nvme70n1+nvme70n3 nvme70n3:nvme70n1+nvme70n2 sdzz: nvme71n1:",
		},
		{
			name: "another disk missing", without: "sdzz",
			want: "nvme70n1:nvme70n2+nvme70n3 nvme70n2:nvme70n1+nvme70n3 nvme70n3:nvme70n1+nvme70n2 nvme71n1:",
		},
		{name: "one missing", without: "nvme70n2", want: "nvme70n1: sdzz: nvme70n3: nvme71n1:"},
		{
			name: "switched off", want: alone,
			node: `"driver_internal_info": {"agent_enable_nvme_secure_erase": false}`,
		},
		{
			name: "array protected", want: alone,
			node: `"properties": {"skip_block_devices": [{"volume_name": "data"}]}`,
		},
		{
			name: "array created", want: alone,
			node: `"raid_config": {"logical_disks": [{"controller": "software", "volume_name": "data", ` +
				`"raid_level": "1", "size_gb": 1}]}`,
		},
		{name: "one is read-only", readOnly: true, want: "nvme70n1: nvme70n2: nvme70n3: sdzz: nvme71n1:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sys, disks := threeNamespaces(t)
			if c.readOnly {
				for _, dir := range []string{"block", "class/block"} {
					if err := os.WriteFile(sys.Sys(dir, "nvme70n2/ro"), []byte("1\n"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			m := newMachineOn(sys)
			n := nodeWith(t, `"name": "n"`)
			if c.node != "" {
				n = nodeWith(t, c.node)
			}
			arrays, err := softraid.RulesOf(n)
			if err != nil {
				t.Fatal(err)
			}
			r := &diskRun{
				m: m, flags: eraseFlagsOf(n, &config.Config{}), arrays: namedArrays{Rules: arrays},
			}
			for _, d := range disks {
				if d.Name != c.without {
					r.disks = append(r.disks, d)
				}
			}
			var erased []string
			for _, unit := range r.byController(t.Context()) {
				for _, d := range unit {
					var names []string
					for _, sibling := range r.siblings(t.Context(), d, unit) {
						names = append(names, sibling.Name)
					}
					erased = append(erased, d.Name+":"+strings.Join(names, "+"))
				}
			}
			if got := strings.Join(erased, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The siblings reach the erase of a namespace.
func TestEraseOptionsSiblings(t *testing.T) {
	m := newMachine(t)
	sibling := block.Device{Name: "nvme70n2", Path: "/dev/nvme70n2"}
	fake(m).erase = func(_ context.Context, _ block.Device, o erase.Options) error {
		if len(o.Siblings) != 1 || o.Siblings[0].Path != sibling.Path {
			t.Errorf("got siblings %v, want %s", o.Siblings, sibling.Path)
		}
		return nil
	}
	r := &diskRun{m: m}
	d := block.Device{Name: "nvme70n1", Path: "/dev/nvme70n1"}
	if err := r.eraseFully(t.Context(), d, []block.Device{sibling}, &erase.Recorder{}); err != nil {
		t.Error(err)
	}
}
