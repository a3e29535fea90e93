package ibft

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/storage/iscsi"
	"ironroot/storage/sysfs"
)

// table is a recording of the kernel's files with iPXE's table, with a second target.
var table = map[string]string{
	"initiator/index": "0", "initiator/flags": "3", "initiator/initiator-name": "iqn.2010-04.org.ipxe:node",
	"ethernet0/index": "0", "ethernet0/flags": "3", "ethernet0/mac": "52:54:00:e2:e0:01", "ethernet0/vlan": "0",
	"ethernet0/ip-addr": "10.0.2.15", "ethernet0/prefix-len": "24", "ethernet0/subnet-mask": "255.255.255.0",
	"ethernet0/gateway": "10.0.2.2", "ethernet0/primary-dns": "10.0.2.3", "ethernet0/origin": "0",
	"target0/index": "0", "target0/flags": "3", "target0/ip-addr": "10.0.2.2", "target0/port": "3260",
	"target0/lun": "01000000", "target0/chap-type": "2", "target0/nic-assoc": "0",
	"target0/target-name": "iqn.2004-01.org.example:disk", "target0/chap-name": "node",
	"target0/chap-secret": "secret-of-node", "target0/rev-chap-name": "disk",
	"target0/rev-chap-name-secret": "secret-of-disk",
	"target1/index":                "1", "target1/flags": "1",
	"target1/ip-addr": "2001:0db8:0000:0000:0000:0000:0000:0001",
	"target1/port":    "860", "target1/chap-type": "0", "target1/target-name": "iqn.2004-01.org.example:disk",
	"acpi_header/signature": "iBFT",
}

// system returns a machine with the table and changes of it; a file with the content "-" is missing.
func system(t *testing.T, changes map[string]string) sysfs.Root {
	t.Helper()
	s := sysfs.Root{Path: t.TempDir()}
	for name, content := range table {
		if changed, found := changes[name]; found {
			content = changed
		}
		if content == "-" {
			continue
		}
		file := s.Sys("firmware/ibft", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../../devices", s.Sys("firmware/ibft/ethernet0/device")); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRead(t *testing.T) {
	got, err := Read(system(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	const initiator, name = "iqn.2010-04.org.ipxe:node", "iqn.2004-01.org.example:disk"
	want := &Table{
		NICs: []NIC{{
			Name: "ethernet0", MAC: net.HardwareAddr{0x52, 0x54, 0, 0xe2, 0xe0, 1},
			Address: netip.MustParsePrefix("10.0.2.15/24"), Gateway: netip.MustParseAddr("10.0.2.2"),
			DNS: []netip.Addr{netip.MustParseAddr("10.0.2.3")},
		}},
		Targets: []iscsi.Target{
			{
				Name: name, Initiator: initiator, Address: netip.MustParseAddrPort("10.0.2.2:3260"),
				CHAP: iscsi.CHAP{
					Name: "node", Secret: "secret-of-node", TargetName: "disk", TargetSecret: "secret-of-disk",
				},
			},
			{Name: name, Initiator: initiator, Address: netip.MustParseAddrPort("[2001:db8::1]:860"), Session: 1},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// A machine without the table has none.
func TestReadNothing(t *testing.T) {
	if got, err := Read(sysfs.Root{Path: t.TempDir()}); got != nil || err != nil {
		t.Errorf("got %+v and %v, want nothing", got, err)
	}
}

// A part of the table that cannot be used is reported. The others are returned.
func TestReadProblems(t *testing.T) {
	for name, c := range map[string]struct {
		changes       map[string]string
		problem       string // "" for none
		nics, targets int
	}{
		"no initiator": {map[string]string{"initiator/initiator-name": "-"}, "initiator: got iSCSI name", 1, 0},
		"truncated name": {
			map[string]string{"initiator/initiator-name": "iqn.20"}, "initiator: got iSCSI name", 1, 0,
		},
		"unused target":  {map[string]string{"target0/flags": "2"}, "", 1, 1},
		"unused card":    {map[string]string{"ethernet0/flags": "0"}, "", 0, 2},
		"no target name": {map[string]string{"target0/target-name": "-"}, "target0: got iSCSI name", 1, 1},
		"long target name": {
			map[string]string{"target0/target-name": "iqn.2004-01.org." + strings.Repeat("x", 2000)},
			"target0: got iSCSI name",
			1,
			1,
		},
		"no target address":  {map[string]string{"target0/ip-addr": "0.0.0.0"}, "target0: no address", 1, 1},
		"bad target address": {map[string]string{"target0/ip-addr": "10.0.2"}, `target0: got ip-addr "10.0.2"`, 1, 1},
		"no port":            {map[string]string{"target0/port": "0"}, `target0: got port "0"`, 1, 1},
		"no CHAP secret": {
			map[string]string{"target0/chap-secret": "-"}, "target0: CHAP without name or secret", 1, 1,
		},
		"no second secret": {
			map[string]string{"target0/rev-chap-name-secret": "-"}, "target0: mutual CHAP without", 1, 1,
		},
		"unknown CHAP": {map[string]string{"target0/chap-type": "3"}, `target0: got chap-type "3"`, 1, 1},
		"bad flags":    {map[string]string{"target0/flags": "x"}, `target0: got flags "x"`, 1, 1},
		"bad MAC":      {map[string]string{"ethernet0/mac": "00:00"}, "ethernet0: got MAC address", 0, 2},
		"bad prefix": {
			map[string]string{"ethernet0/prefix-len": "33"}, `ethernet0: got prefix-len "33"`, 0, 2,
		},
		"no prefix": {map[string]string{"ethernet0/prefix-len": "-"}, `ethernet0: got prefix-len "0"`, 0, 2},
		"bad VLAN":  {map[string]string{"ethernet0/vlan": "4095"}, `ethernet0: got vlan "4095"`, 0, 2},
		"bad gateway": {
			map[string]string{"ethernet0/gateway": "224.0.0.1"}, `ethernet0: got gateway "224.0.0.1"`, 0, 2,
		},
		"bad name server": {
			map[string]string{"ethernet0/primary-dns": "dns"}, `ethernet0: got primary-dns "dns"`, 0, 2,
		},
		"card without address": {map[string]string{"ethernet0/ip-addr": "-", "ethernet0/prefix-len": "-"}, "", 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(system(t, c.changes))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.NICs) != c.nics || len(got.Targets) != c.targets {
				t.Errorf("got %d network cards and %d targets, want %d and %d", len(got.NICs), len(got.Targets), c.nics,
					c.targets)
			}
			if c.problem == "" {
				if len(got.Problems) > 0 {
					t.Errorf("got problems %v, want none", got.Problems)
				}
			} else if len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Error(), c.problem) {
				t.Errorf("got problems %v, want %q", got.Problems, c.problem)
			}
			for _, problem := range got.Problems {
				if strings.Contains(problem.Error(), "secret-of-") {
					t.Errorf("problem %v contains a secret", problem)
				}
			}
		})
	}
}

// Firmware can write anything into the table.
func FuzzFields(f *testing.F) {
	f.Add("1", "iqn.2004-01.org.example:disk", "10.0.2.2", "3260", "2", "secret", "24")
	f.Add("3", "", "fe80::1%eth0", "-1", "0x1", "", "128")
	f.Fuzz(func(t *testing.T, flags, name, address, port, chap, secret, bits string) {
		table := &Table{}
		err := table.addTarget("target0", "iqn.2010-04.org.ipxe:node", fields{
			"flags": flags, "target-name": name, "ip-addr": address, "port": port, "chap-type": chap,
			"chap-name": secret, "chap-secret": secret, "rev-chap-name-secret": secret,
		})
		for _, target := range table.Targets {
			if err != nil || !target.Address.IsValid() || target.Name == "" || target.Address.Addr().IsUnspecified() {
				t.Errorf("got %v and %v", target, err)
			}
		}
		err = table.addNIC("ethernet0", fields{
			"flags": flags, "mac": "52:54:00:e2:e0:01", "ip-addr": address, "prefix-len": bits, "vlan": port,
			"gateway": address,
		})
		for _, n := range table.NICs {
			if err != nil || n.Address != (netip.Prefix{}) && !n.Address.IsValid() {
				t.Errorf("got %+v and %v", n, err)
			}
		}
	})
}
