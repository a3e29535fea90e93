//go:build linux

// Package radv receives the router advertisements of IPv6 (RFC 4861) from the kernel, which has checked that they come
// from the link itself. The kernel uses the addresses and routes in them. This package needs the rest: whether there is
// DHCPv6, and the name servers (RFC 8106).
package radv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/listing"
	"ironroot/netboot/resolver"
)

// Advertisement is a part of a router advertisement: either the flags of a link, or one option.
type Advertisement struct {
	Index  int // of the link
	Flags  Flags
	Option *Option // nil: Flags are set
}

// Flags are the flags of a link that router advertisements set (IF_RA_ of the kernel's net/if_inet6.h).
type Flags uint32

// The flags.
const (
	Other   Flags = 0x80 // DHCPv6 has name servers and the like
	Managed Flags = 0x40 // DHCPv6 has addresses
	Heard   Flags = 0x20 // there was an advertisement
)

// Option is a recursive DNS server option or a DNS search list option (RFC 8106).
type Option struct {
	Servers  []netip.Addr
	Search   []string
	Lifetime time.Duration // 0 revokes earlier ones; dhcp.Forever does not expire
}

// receiveBuffer is the requested receive buffer, in bytes: all links of a machine may send events at once.
const receiveBuffer = 1 << 20

// Subscribe sends the advertisements that the kernel receives (rtnetlink(7)) to events until done is closed. It closes
// events when the subscription ends.
func Subscribe(events chan<- Advertisement, done <-chan struct{}) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV6_IFINFO, unix.RTNLGRP_ND_USEROPT)
	if err != nil {
		close(events)
		return fmt.Errorf("watch router advertisements: %w", err)
	}
	if err := socket.SetReceiveBufferSize(receiveBuffer, false); err != nil {
		socket.Close()
		close(events)
		return fmt.Errorf("watch router advertisements: %w", err)
	}
	goroutine.Go(func() error {
		<-done
		socket.Close()
		return nil
	}, nil)
	goroutine.Go(func() error {
		return read(socket.Receive, parse, events)
	}, func(error) { close(events) }) // the subscriber subscribes again
	return nil
}

// messageParser parses a netlink message; ok is false if the message does not come from a router advertisement.
type messageParser func(kind uint16, data []byte) (a Advertisement, ok bool)

// contain calls the parser. A message that causes a panic is dropped: ok is false.
func (p messageParser) contain(kind uint16, data []byte) (a Advertisement, ok bool) {
	err := goroutine.Catch(func() error {
		a, ok = p(kind, data)
		return nil
	})
	return a, ok && err == nil
}

// read sends the advertisements of the kernel's messages to events until receive fails.
func read(
	receive func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error), p messageParser,
	events chan<- Advertisement,
) error {
	for {
		messages, from, err := receive()
		if err != nil {
			return err
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		for _, m := range messages {
			if a, ok := p.contain(m.Header.Type, m.Data); ok {
				events <- a
			}
		}
	}
}

// List returns the flags of all links.
func List() ([]Advertisement, error) {
	messages, err := listing.Whole(func() ([][]byte, error) {
		request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfInfomsg(unix.AF_INET6))
		return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	})
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list IPv6 links: %w", err)
	}
	var list []Advertisement
	for _, data := range messages {
		if a, ok := messageParser(parse).contain(unix.RTM_NEWLINK, data); ok {
			list = append(list, a)
		}
	}
	return list, nil
}

// parse is the [messageParser] for RTM_NEWLINK and RTM_NEWNDUSEROPT.
func parse(kind uint16, data []byte) (a Advertisement, ok bool) {
	switch kind {
	case unix.RTM_NEWLINK:
		return parseFlags(data)
	case unix.RTM_NEWNDUSEROPT:
		return parseUserOption(data)
	}
	return Advertisement{}, false
}

// parseFlags reads struct ifinfomsg and the attribute IFLA_INET6_FLAGS within IFLA_PROTINFO.
func parseFlags(data []byte) (Advertisement, bool) {
	if len(data) < unix.SizeofIfInfomsg || data[0] != unix.AF_INET6 {
		return Advertisement{}, false
	}
	index := int(int32(binary.NativeEndian.Uint32(data[4:])))
	value := listing.Attribute(listing.Attribute(data[unix.SizeofIfInfomsg:], unix.IFLA_PROTINFO),
		unix.IFLA_INET6_FLAGS)
	if len(value) != 4 {
		return Advertisement{}, false
	}
	return Advertisement{Index: index, Flags: Flags(binary.NativeEndian.Uint32(value))}, true
}

const (
	sizeofNdUserOpt = 16  // struct nduseroptmsg
	routerAdvert    = 134 // its icmp_type
	optionRDNSS     = 25  // RFC 8106, section 5.1
	optionDNSSL     = 31  // section 5.2
)

// parseUserOption reads struct nduseroptmsg and the one option behind it.
func parseUserOption(data []byte) (Advertisement, bool) {
	if len(data) < sizeofNdUserOpt || data[0] != unix.AF_INET6 || data[8] != routerAdvert {
		return Advertisement{}, false
	}
	length := int(binary.NativeEndian.Uint16(data[2:]))
	index := int(int32(binary.NativeEndian.Uint32(data[4:])))
	raw := data[sizeofNdUserOpt:]
	if length > len(raw) {
		return Advertisement{}, false
	}
	option, ok := parseDNSOption(raw[:length])
	return Advertisement{Index: index, Option: option}, ok
}

// parseDNSOption reads an option as it is on the wire: type, length in units of 8 bytes, 2 reserved bytes, lifetime in
// seconds, addresses or names.
func parseDNSOption(raw []byte) (*Option, bool) {
	if len(raw) < 8 || int(raw[1])*8 != len(raw) {
		return nil, false
	}
	o := &Option{Lifetime: dhcp.Lifetime(binary.BigEndian.Uint32(raw[4:]))}
	switch raw[0] {
	case optionRDNSS:
		for rest := raw[8:]; len(rest) >= 16 && len(o.Servers) < resolver.MaxServers; rest = rest[16:] {
			if server, ok := netip.AddrFromSlice(rest[:16]); ok && dhcp.IsHostAddress6(server) {
				o.Servers = append(o.Servers, server)
			}
		}
		return o, len(o.Servers) > 0
	case optionDNSSL:
		o.Search = slices.DeleteFunc(parseNames(raw[8:]),
			func(name string) bool { return !resolver.IsDomainName(name) })
		return o, len(o.Search) > 0
	}
	return nil, false
}

// parseNames reads uncompressed domain names (RFC 1035, section 3.1), padded with zero bytes.
func parseNames(raw []byte) []string {
	var names []string
	var labels []string
	for len(raw) > 0 && len(names) < resolver.MaxSearch {
		size := int(raw[0])
		if size >= len(raw) && size != 0 || size > 63 {
			return names
		}
		if size == 0 {
			if len(labels) > 0 {
				names = append(names, strings.Join(labels, "."))
			}
			labels = nil
		} else {
			labels = append(labels, string(raw[1:1+size]))
		}
		raw = raw[1+size:]
	}
	return names
}
