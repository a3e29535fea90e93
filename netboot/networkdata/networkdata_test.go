package networkdata

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is parsed to testdata/*.txt")

// describe formats data as lines.
func describe(d *Data) string {
	var text strings.Builder
	for _, l := range d.Links {
		fmt.Fprintf(&text, "link %s", l.ID)
		switch l.Kind {
		case Physical:
			text.WriteString(" physical")
		case Bonded:
			fmt.Fprintf(&text, " bond of %v, mode %d, options %v", l.Bond.Members, l.Bond.Mode, l.Bond.Options)
			if l.Bond.Primary != "" || l.Bond.ARPTargets != nil || l.Bond.ActorSystem != nil {
				fmt.Fprintf(&text, ", primary %q, ARP %v, system %v",
					l.Bond.Primary, l.Bond.ARPTargets, l.Bond.ActorSystem)
			}
		case Tagged:
			fmt.Fprintf(&text, " VLAN %d of %s", l.VLAN, l.Parent)
		}
		fmt.Fprintf(&text, ", MAC %v, MTU %d\n", l.MAC, l.MTU)
		for _, n := range l.Networks {
			fmt.Fprintf(&text, "  network %s method %d", n.ID, n.Method)
			if n.Method == Static {
				fmt.Fprintf(&text, " %v", n.Address)
			}
			fmt.Fprintf(&text, ", DNS %v %v\n", n.DNS, n.Search)
			for _, r := range n.Routes {
				fmt.Fprintf(&text, "    to %v by %v\n", r.Destination, r.Gateway)
			}
		}
	}
	fmt.Fprintf(&text, "DNS %v\n", d.DNS)
	for _, p := range d.Problems {
		fmt.Fprintf(&text, "problem: %v\n", p)
	}
	return text.String()
}

func TestGenerators(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %v, %v, want the documents", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			document, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			data, err := Parse(document)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".json") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(describe(data)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), describe(data)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

const (
	card0 = `{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}`
	card1 = `{"id": "b", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:02"}`
)

func net4(id, link, rest string) string {
	return fmt.Sprintf(`{"id": %q, "type": "ipv4", "link": %q, "ip_address": "192.0.2.%d", "netmask": "24"%s}`,
		id, link, 7+len(id), rest)
}

// Contradictory parts are reported with their id, and the rest is used.
func TestContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		links, networks []string
		problems        []string // each a part of one problem, in order
		want            string   // ids of links, and of the networks on them
	}{
		"one MAC twice": {
			[]string{card0, `{"id": "c", "type": "vif", "ethernet_mac_address": "52-54-00-00-00-01"}`},
			[]string{net4("n", "a", ""), net4("nn", "c", "")},
			[]string{
				`link "c": link "a" has the same MAC address 52:54:00:00:00:01`,
				`network "nn": link "c" is not among the usable links`,
			},
			"a[n]",
		},
		"one id twice": {
			[]string{card0, `{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:09"}`},
			nil,
			[]string{`link "a": another link has the same id`},
			"a[]",
		},
		"routes with DHCP": {
			[]string{card0},
			[]string{`{"id": "n", "type": "ipv4_dhcp", "link": "a", "gateway": "192.0.2.1", "routes": [
				{"network": "10.0.0.0", "netmask": "8", "gateway": "192.0.2.2"},
				{"services": [{"type": "dns", "address": "192.0.2.3"}]}, 7]}`},
			[]string{
				`network "n": gateway "192.0.2.1": not used with type "ipv4_dhcp"`,
				`network "n": route to "10.0.0.0": not used with`, `network "n": route: json`,
			},
			"a[n]",
		},
		"VLAN on an unknown link": {
			[]string{card0, `{"id": "v", "type": "vlan", "vlan_id": 5, "vlan_link": "x"}`},
			[]string{net4("n", "v", ""), net4("nn", "a", "")},
			[]string{`link "v": vlan_link "x" is not among`, `network "n": link "v"`},
			"a[nn]",
		},
		"VLAN ids": {
			[]string{
				card0, `{"id": "v0", "type": "vlan", "vlan_id": 0, "vlan_link": "a"}`,
				`{"id": "v1", "type": "vlan", "vlan_id": 4095, "vlan_link": "a"}`,
				`{"id": "v2", "type": "vlan", "vlan_link": "a"}`,
				`{"id": "v3", "type": "vlan", "vlan_id": 3, "vlan_link": "a"}`,
				`{"id": "v4", "type": "vlan", "vlan_id": 3, "vlan_link": "a"}`,
			},
			nil,
			[]string{
				`"v0": vlan_id: got "0"`, `"v1": vlan_id: got "4095"`, `"v2": vlan_id: got ""`,
				`"v4": link "v3" already is VLAN 3 of "a"`,
			},
			"a[] v3[]",
		},
		"circle of VLANs": {
			[]string{
				card0, `{"id": "u", "type": "vlan", "vlan_id": 1, "vlan_link": "w"}`,
				`{"id": "v", "type": "vlan", "vlan_id": 2, "vlan_link": "u"}`,
				`{"id": "w", "type": "vlan", "vlan_id": 3, "vlan_link": "v"}`,
				`{"id": "self", "type": "vlan", "vlan_id": 3, "vlan_link": "self"}`,
			},
			nil,
			[]string{
				`"u": vlan_link "w" is part of a cycle`, `"v": vlan_link "u" is part of a cycle`, `"w": vlan_link`,
				`"self": vlan_link "self" is part of a cycle`,
			},
			"a[]",
		},
		"VLAN on a VLAN, in the wrong order": {
			[]string{
				`{"id": "v", "type": "vlan", "vlan_id": 2, "vlan_link": "u"}`,
				`{"id": "u", "type": "vlan", "vlan_id": 1, "vlan_link": "a"}`, card0,
			},
			nil, nil, "a[] u[] v[]",
		},
		"bonds": {
			[]string{
				card0, card1,
				`{"id": "b0", "type": "bond", "bond_mode": "802.1ad", "bond_links": ["a", "x", "b0"], ` +
					`"bond_primary": "b"}`,
				`{"id": "b1", "type": "bond", "bond_mode": 1, "bond_links": ["a", "b"]}`,
				`{"id": "b2", "type": "bond", "bond_mode": "1", "bond_links": []}`,
				`{"id": "b3", "type": "bond", "bond_mode": "best", "bond_links": ["a"]}`,
				`{"id": "b4", "type": "bond", "bond_links": "a"}`,
				`{"id": "v", "type": "vlan", "vlan_id": 2, "vlan_link": "a"}`,
			},
			[]string{net4("n", "a", ""), net4("nn", "b1", "")},
			[]string{
				`"b3": bond_mode: got "best"`, `"b4": bond_mode: got ""`, `"b0": member "x" is not among`,
				`"b0": member "b0" is not a network card`, `"b0": bond_primary "b" is not one of its members`,
				`"b1": member "a" is already a member of link "b0"`, `"b2": bond without members`,
				`"v": vlan_link "a" is a member of bond "b0"`, `network "n": link "a" is a member of bond "b0"`,
			},
			"a[] b[] b0[] b1[nn]",
		},
		"options of a bond": {
			[]string{card0, `{"id": "o", "type": "bond", "bond_mode": "active-backup", "bond_links": "a",
				"bond_lacp_rate": "fast", "bond_speed": 1,
				"bond_miimon": "often", "bond_arp_ip_target": "192.0.2.1,2001:db8::1",
				"bond_primary_reselect": "better", "bond_ad_actor_system": null}`},
			nil,
			[]string{
				`"o": bond_arp_ip_target: got "2001:db8::1"`, `"o": bond_lacp_rate: the bond's mode does not have`,
				`"o": bond_miimon: got "often"`, `"o": bond_speed: unknown option`,
			},
			"a[] o[]",
		},
		"links that are none": {
			[]string{
				card0, `[]`, `{"type": "phy"}`, `{"id": "x", "type": "phy"}`,
				`{"id": "y", "type": "phy", "ethernet_mac_address": "ff:ff:ff:ff:ff:ff"}`,
				`{"id": "z", "type": "quantum", "ethernet_mac_address": "52:54:00:00:00:05", "mtu": 12}`,
				`{"id": {"a": 1}}`,
			},
			nil,
			[]string{
				`link number 2: `, `link number 3: no id`, `"x": link of type "phy" has no MAC`,
				`"y": MAC address: got "ff:`, `"z": unknown type "quantum"`, `"z": MTU: got "12"`, `link number 7: `,
			},
			"a[] z[]",
		},
		"networks": {
			[]string{card0},
			[]string{
				net4("n", "a", ""),
				`{"id": "x", "type": "ipv4", "link": "a", "ip_address": "192.0.2.8", "netmask": "24"}`,
				net4("y", "?", ""), `{"id": "t", "type": "ipx", "link": "a"}`,
				`{"id": "m", "type": "ipv4", "link": "a", "ip_address": "192.0.2.9"}`,
				`{"id": "h", "type": "ipv4", "link": "a", "ip_address": "192.0.2.9", "netmask": "255.0.255.0"}`,
				`{"id": "f", "type": "ipv4", "link": "a", "ip_address": "2001:db8::1/64"}`,
				`{"id": "b", "type": "ipv4", "link": "a", "ip_address": "192.0.2.255/24"}`,
				`{"id": "l", "type": "ipv6", "link": "a", "ip_address": "::1", "netmask": "64"}`,
				`{"id": "z", "type": "ipv4", "link": "a", "ip_address": "192.0.2.9/0"}`,
			},
			[]string{
				`network "x": network "n" has the same address 192.0.2.8`, `network "y": link "?" is not among`,
				`network "t": unknown type "ipx"`, `network "m": ip_address: 192.0.2.9 has no netmask`,
				`network "h": ip_address: got netmask "255.0.255.0"`,
				`network "f": ip_address 2001:db8::1 does not match`,
				`network "b": ip_address 192.0.2.255/24 is the network or broadcast`,
				`network "l": ip_address: got "::1"`, `network "z": netmask`,
			},
			"a[n]",
		},
		"routes and servers": {
			[]string{card0},
			[]string{net4("n", "a", `, "gateway": "192.0.2.1", "routes": [
				{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.2"},
				{"network": "10.0.0.0", "netmask": "8", "gateway": "2001:db8::1"},
				{"network": "10.0.0.0", "netmask": "8", "gateway": "192.0.2.8"},
				{"network": "10.0.0.0", "netmask": "8"}, 7,
				{"network": "224.0.0.0", "netmask": "4", "gateway": "192.0.2.1"}],
				"dns_nameservers": ["0.0.0.0"], "dns_search": ["a b"]`)},
			[]string{
				`network "n": route to "10.0.0.0": gateway 2001:db8::1 and address 192.0.2.8 are of ` +
					`different families`,
				`gateway 192.0.2.8 is the machine itself`, `route to "10.0.0.0": gateway: got ""`,
				`network "n": route: `, `destination is a multicast or loopback address`,
				`route to 0.0.0.0/0: already has another gateway`, `network "n": name server: got "0.0.0.0"`,
				`dns_search "a b"`,
			},
			"a[n]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			document := fmt.Sprintf(`{"links": [%s], "networks": [%s], "services": []}`,
				strings.Join(c.links, ","), strings.Join(c.networks, ","))
			if !json.Valid([]byte(document)) {
				t.Fatalf("the test's document is broken: %s", document)
			}
			data, err := Parse([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range data.Links {
				var networks []string
				for _, n := range l.Networks {
					networks = append(networks, n.ID)
				}
				got = append(got, fmt.Sprintf("%s%v", l.ID, networks))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("usable: got %v, want %v", got, c.want)
			}
			if len(data.Problems) != len(c.problems) {
				t.Errorf("problems: got %d, want %d", len(data.Problems), len(c.problems))
			}
			for i, p := range data.Problems {
				if i >= len(c.problems) || !strings.Contains(p.Error(), c.problems[i]) {
					t.Errorf("problem %d: got %v, want %q", i, p, c.problems[min(i, len(c.problems)-1)])
				}
			}
		})
	}
}

// A bond without a MAC address has the address of the first usable one of its members in the order of bond_links, as
// the kernel gives it the address of the first member that joins.
func TestBondMAC(t *testing.T) {
	const first, second = "52:54:00:00:00:01", "52:54:00:00:00:02"
	for _, tt := range []struct{ bond, want string }{
		{`"bond_links": ["b", "a"]`, second},
		{`"bond_links": ["x", "a", "b"]`, first},
		{`"bond_links": ["b", "a"], "ethernet_mac_address": "52:54:00:00:00:01"`, first},
		{`"bond_links": ["a", "b"], "bond_primary": "b"`, first},
		{`"bond_links": ["a", "b"], "ethernet_mac_address": null, "bond_miimon": 9`, first},
	} {
		data, err := Parse([]byte(`{"links": [{"id": "c", "type": "bond", "bond_mode": 1, ` + tt.bond + `},` +
			card0 + `,` + card1 + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := data.Link("c").MAC.String(); got != tt.want {
			t.Errorf("%s: got MAC address %q, want %q", tt.bond, got, tt.want)
		}
	}
}

func TestUseless(t *testing.T) {
	for name, document := range map[string]string{
		"empty": "", "no JSON": "links:\n- id: a\n", "a list": "[]", "text": `"links"`,
		"cut off": `{"links": [` + card0, "more": `{} {}`, "links are no list": `{"links": {}}`,
		"no usable link": `{"links": [{"id": "a", "type": "phy"}], "networks": []}`,
		"too large":      `{"links": []}` + strings.Repeat(" ", maxSize),
		"too many":       `{"links": [` + strings.Repeat(card0+",", maxLinks) + card0 + `]}`,
	} {
		if data, err := Parse([]byte(document)); err == nil {
			t.Errorf("%s: got %v, want an error", name, data)
		}
	}
	_, err := Parse([]byte(`{"links": [{"id": "eno7", "type": "phy"}]}`))
	if err == nil || !strings.Contains(err.Error(), `link "eno7": link of type "phy" has no MAC address`) {
		t.Errorf("got %v, want an error that names the link", err)
	}
	for _, document := range []string{`{}`, `null`, `{"links": [], "networks": [], "services": []}`} {
		if data, err := Parse([]byte(document)); err != nil || len(data.Links) != 0 || len(data.Problems) != 0 {
			t.Errorf("%s: got %+v, %v, want nothing", document, data, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		document, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(document)
	}
	for _, document := range []string{
		`{"links":[` + card0 + `,` + card1 + `,{"id":"c","type":"bond","bond_mode":1,"bond_links":["a","b"]}]}`,
		`{"links":[` + card0 +
			`,{"id":"v","type":"vlan","vlan_id":1,"vlan_link":"a"},{"id":"w","type":"vlan","vlan_id":1,` +
			`"vlan_link":"v"}]}`,
		`{"links":[` + card0 + `],"networks":[` + net4("n", "a", `,"gateway":"192.0.2.1"`) + `]}`,
		`{"services":[{"type":"dns","address":"1.1.1.1"}]}`,
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		data, err := Parse(document)
		if err != nil {
			return
		}
		made := map[string]bool{}
		for _, l := range data.Links {
			if made[l.ID] || l.ID == "" {
				t.Fatalf("link %q: twice, or without an id", l.ID)
			}
			made[l.ID] = true
			switch l.Kind {
			case Physical:
				if len(l.MAC) != 6 {
					t.Errorf("link %q: got MAC %v", l.ID, l.MAC)
				}
			case Bonded:
				if len(l.Bond.Members) == 0 {
					t.Errorf("link %q: no members", l.ID)
				}
				for _, member := range l.Bond.Members {
					m := data.Link(member)
					if m == nil || m.Kind != Physical || len(m.Networks) > 0 || data.Member(member) != l.ID {
						t.Errorf("link %q: got member %q: %+v", l.ID, member, m)
					}
				}
			case Tagged:
				if !made[l.Parent] || l.VLAN < minVLAN || l.VLAN > maxVLAN {
					t.Errorf("link %q: got VLAN %d of %q, which did not come before", l.ID, l.VLAN, l.Parent)
				}
			}
			for _, n := range l.Networks {
				if n.Method == Static && !n.Address.IsValid() {
					t.Errorf("network %q: got address %v", n.ID, n.Address)
				}
				for _, r := range n.Routes {
					if !r.Destination.IsValid() || !r.Gateway.IsValid() || r.Gateway.Is4() != n.Address.Addr().Is4() {
						t.Errorf("network %q: got route %v", n.ID, r)
					}
				}
			}
		}
	})
}
