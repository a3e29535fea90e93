//go:build linux

package boot

import (
	"bytes"
	"context"
	"net/netip"
	"slices"

	"ironroot/internal/pause"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/snapshot"
	"ironroot/storage/ibft"
	"ironroot/storage/iscsi"
)

// unansweredRequests is the number of DHCP requests after which a link without a lease gets the address of the iBFT.
const unansweredRequests = 4

// addresses gives network cards the addresses of the iBFT that they need: those in a VLAN at once, others if DHCP does
// not answer. Other static network data takes precedence. It returns when there is nothing to wait for.
func (d *sanDisks) addresses(ctx context.Context, table *ibft.Table, static func() bool) {
	used := map[string]bool{}
	for ctx.Err() == nil {
		changed := d.network.Changed()
		if static() {
			return
		}
		added, waiting := false, false
		links := d.network.Links()
		for _, n := range table.NICs {
			switch {
			case used[n.Name] || !n.Address.IsValid():
			case n.VLAN != 0 || unanswered(links, n):
				used[n.Name], added = true, true
				d.m.Log.Info("address of the iBFT used", "mac", n.MAC, "address", n.Address, "vlan", n.VLAN)
			default:
				waiting = true
			}
		}
		if added {
			leased := slices.ContainsFunc(links, func(l snapshot.Link) bool { return l.Lease != nil })
			d.network.Configure(ibftData(table, used, !leased))
		}
		if !waiting {
			return
		}
		_ = pause.Until(ctx, changed) // the loop ends with ctx
	}
}

// unanswered reports whether DHCP does not give an address to a network card with a carrier.
func unanswered(links []snapshot.Link, n ibft.NIC) bool {
	for _, l := range links {
		if bytes.Equal(l.MAC, n.MAC) {
			return l.Carrier && l.Lease == nil && l.History.DHCP.Sent >= unansweredRequests
		}
	}
	return false
}

// ibftData returns the network data of the cards whose addresses are used. A card with a VLAN also keeps DHCP without
// the VLAN. The routers lead to the targets and, if isDefault is set, everywhere.
func ibftData(table *ibft.Table, used map[string]bool, isDefault bool) *networkdata.Data {
	data := &networkdata.Data{}
	for _, n := range table.NICs {
		if !used[n.Name] {
			continue
		}
		network := networkdata.Network{
			ID: n.Name, Method: networkdata.Static, Address: n.Address, DNS: n.DNS,
			Routes: ibftRoutes(n, table.Targets, isDefault),
		}
		link := networkdata.Link{ID: n.Name, Kind: networkdata.Physical, MAC: n.MAC}
		if n.VLAN == 0 {
			link.Networks = []networkdata.Network{network}
			data.Links = append(data.Links, link)
			continue
		}
		link.Networks = []networkdata.Network{{ID: n.Name + "-dhcp", Method: networkdata.DHCP4}}
		data.Links = append(data.Links, link, networkdata.Link{
			ID: n.Name + "-vlan", Kind: networkdata.Tagged, Parent: link.ID, VLAN: n.VLAN,
			Networks: []networkdata.Network{network},
		})
	}
	return data
}

// ibftRoutes returns the routes by the router of a card.
func ibftRoutes(n ibft.NIC, targets []iscsi.Target, isDefault bool) (routes []networkdata.Route) {
	family := n.Address.Addr().BitLen()
	if !n.Gateway.IsValid() || n.Gateway.BitLen() != family {
		return nil
	}
	if isDefault && n.VLAN == 0 {
		all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if n.Gateway.Is4() {
			all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		return []networkdata.Route{{Destination: all, Gateway: n.Gateway}}
	}
	for _, t := range targets {
		if address := t.Address.Addr(); address.BitLen() == family && !n.Address.Contains(address) {
			route := networkdata.Route{Destination: netip.PrefixFrom(address, family), Gateway: n.Gateway}
			if !slices.Contains(routes, route) {
				routes = append(routes, route)
			}
		}
	}
	return routes
}
