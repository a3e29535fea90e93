package networkdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Bond is the configuration of a bond (https://docs.kernel.org/networking/bonding.html).
type Bond struct {
	Members []string // ids of links
	Mode    Mode
	// Options maps names of the driver's options, such as lacp_rate, to the driver's numbers.
	Options     map[string]int
	ARPTargets  []netip.Addr
	Primary     string           // id of a member; "" means none
	ActorSystem net.HardwareAddr // of LACP; nil means the bond's own address
}

// Mode is a bond's mode. The values are the driver's numbers.
type Mode int

// The modes.
const (
	RoundRobin Mode = iota
	ActiveBackup
	XOR
	Broadcast
	LACP // IEEE 802.3ad
	TLB
	ALB
)

// modes maps names and numbers to modes.
var modes = map[string]Mode{
	"balance-rr": RoundRobin, "active-backup": ActiveBackup, "balance-xor": XOR, "broadcast": Broadcast,
	"802.3ad": LACP, "balance-tlb": TLB, "balance-alb": ALB,
	"802.1ad": LACP, // OpenStack's documentation uses this number of another standard
	"lacp":    LACP,
	"0":       RoundRobin, "1": ActiveBackup, "2": XOR, "3": Broadcast, "4": LACP, "5": TLB, "6": ALB,
}

// option describes the values of a driver's option.
type option struct {
	high   int      // largest number, if it has no names
	low    int      // smallest number
	values []string // names of the numbers from 0, if any
	modes  []Mode   // modes that have the option; nil means all
}

const maxDelay = 1 << 30 // milliseconds

// options lists the options that the driver and the kernel's netlink interface have.
var options = map[string]option{
	"miimon":       {high: maxDelay},
	"updelay":      {high: maxDelay},
	"downdelay":    {high: maxDelay},
	"use_carrier":  {values: []string{"off", "on"}},
	"arp_interval": {high: maxDelay, modes: []Mode{RoundRobin, ActiveBackup, XOR, Broadcast}},
	"arp_validate": {
		values: []string{"none", "active", "backup", "all", "filter", "filter_active", "filter_backup"},
	},
	"arp_all_targets":   {values: []string{"any", "all"}},
	"primary_reselect":  {values: []string{"always", "better", "failure"}, modes: []Mode{ActiveBackup, TLB, ALB}},
	"fail_over_mac":     {values: []string{"none", "active", "follow"}},
	"xmit_hash_policy":  {values: []string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"}},
	"resend_igmp":       {high: 255},
	"num_grat_arp":      {high: 255},
	"num_unsol_na":      {high: 255},
	"all_slaves_active": {values: []string{"dropped", "delivered"}},
	"min_links":         {high: 255},
	"lp_interval":       {low: 1, high: maxDelay},
	"packets_per_slave": {high: 65535, modes: []Mode{RoundRobin}},
	"lacp_rate":         {values: []string{"slow", "fast"}, modes: []Mode{LACP}},
	"ad_select":         {values: []string{"stable", "bandwidth", "count"}, modes: []Mode{LACP}},
	"ad_actor_sys_prio": {low: 1, high: 65535, modes: []Mode{LACP}},
	"ad_user_port_key":  {high: 1023, modes: []Mode{LACP}},
	"tlb_dynamic_lb":    {values: []string{"off", "on"}, modes: []Mode{TLB, ALB}},
}

// number parses a value of the option.
func (o option) number(s scalar) (int, error) {
	if i := slices.Index(o.values, strings.ToLower(string(s))); i >= 0 {
		return i, nil
	}
	value, err := s.number(o.low, max(o.high, len(o.values)-1))
	if err != nil && o.values != nil {
		return 0, fmt.Errorf("got %q, want one of %s", s, strings.Join(o.values, ", "))
	}
	return value, err
}

// bond parses the bond of a link. Invalid options are dropped and reported; the bond is kept.
func (r *reader) bond(fields rawLink, raw []byte) (*Bond, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	var name scalar
	if text, given := all["bond_mode"]; given {
		if err := json.Unmarshal(text, &name); err != nil {
			return nil, fmt.Errorf("bond_mode: %w", err)
		}
	}
	mode, known := modes[strings.ToLower(string(name))]
	if !known {
		return nil, fmt.Errorf("bond_mode: got %q, want a mode of the bonding driver, such as 802.3ad", name)
	}
	b := &Bond{Mode: mode, Options: map[string]int{}}
	for _, member := range fields.BondLinks {
		b.Members = append(b.Members, string(member))
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		name, ok := strings.CutPrefix(key, "bond_")
		if !ok || name == "mode" || name == "links" {
			continue
		}
		if err := b.option(name, all[key]); err != nil {
			r.problem("link %q: %s: %w", fields.ID, key, err)
		}
	}
	return b, nil
}

func (b *Bond) option(name string, raw json.RawMessage) (err error) {
	if name == "arp_ip_target" {
		b.ARPTargets, err = arpTargets(raw)
		return err
	}
	var value scalar
	if err := json.Unmarshal(raw, &value); err != nil || value == "" {
		return err
	}
	switch name {
	case "primary":
		b.Primary = string(value)
		return nil
	case "ad_actor_system":
		b.ActorSystem, err = value.mac()
		return err
	}
	o, known := options[name]
	if !known {
		return errors.New("unknown option")
	}
	if o.modes != nil && !slices.Contains(o.modes, b.Mode) {
		return errors.New("the bond's mode does not have this option")
	}
	number, err := o.number(value)
	if err != nil {
		return err
	}
	b.Options[name] = number
	return nil
}

// arpTargets parses the IPv4 addresses that a bond monitors by ARP. The driver accepts 16.
func arpTargets(raw json.RawMessage) ([]netip.Addr, error) {
	var list scalars
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	const most = 16
	var targets []netip.Addr
	for _, text := range list {
		address, err := text.address()
		if err != nil {
			return nil, err
		}
		if !address.Is4() || len(targets) == most {
			return nil, fmt.Errorf("got %q, want at most %d IPv4 addresses", text, most)
		}
		targets = append(targets, address)
	}
	return targets, nil
}
