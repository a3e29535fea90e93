package netboot

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
	"ironroot/netboot/listing"
)

// advertisement is what the kernel passes on of one router advertisement: either which services of DHCPv6 there are,
// or one option that the kernel has no use for itself.
type advertisement struct {
	index  int // of the link
	flags  uint32
	option *dnsOption // nil: flags are set
}

// dnsOption is a recursive DNS server option or a DNS search list option of a router advertisement (RFC 8106).
type dnsOption struct {
	servers  []netip.Addr
	search   []string
	lifetime time.Duration // 0 takes back what was said before; Forever does not end
}

// Flags of a link that router advertisements set (IF_RA_ of the kernel's net/if_inet6.h).
const (
	flagOther   = 0x80 // DHCPv6 knows name servers and the like
	flagManaged = 0x40 // DHCPv6 has addresses
	flagHeard   = 0x20 // there was an advertisement
)

// subscribeAdvertisements opens a subscription to what the kernel learns from routers (rtnetlink(7)). The kernel has
// checked by then that an advertisement comes from the link itself. The channel is closed when the subscription ends.
func subscribeAdvertisements(events chan<- advertisement, done <-chan struct{}) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV6_IFINFO, unix.RTNLGRP_ND_USEROPT)
	if err != nil {
		close(events)
		return fmt.Errorf("watch router advertisements: %w", err)
	}
	if err := socket.SetReceiveBufferSize(eventBuffer, false); err != nil {
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
		return readAdvertisements(socket.Receive, parseAdvertisement, events)
	}, func(error) { close(events) }) // the subscriber subscribes again
	return nil
}

// messageParser parses a netlink message; ok is false if the message does not come from a router advertisement.
type messageParser func(kind uint16, data []byte) (a advertisement, ok bool)

// contain calls the parser. A message that causes a panic is dropped: ok is false.
func (parse messageParser) contain(kind uint16, data []byte) (a advertisement, ok bool) {
	err := goroutine.Catch(func() error {
		a, ok = parse(kind, data)
		return nil
	})
	return a, ok && err == nil
}

// readAdvertisements sends the advertisements of the kernel's messages to events until receive fails.
func readAdvertisements(
	receive func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error), parse messageParser, events chan<- advertisement,
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
			if a, ok := parse.contain(m.Header.Type, m.Data); ok {
				events <- a
			}
		}
	}
}

// listAdvertisements returns the flags of all links, as far as routers have set any.
func listAdvertisements() ([]advertisement, error) {
	messages, err := listing.Whole(func() ([][]byte, error) {
		request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfInfomsg(unix.AF_INET6))
		return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	})
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list IPv6 links: %w", err)
	}
	var list []advertisement
	for _, data := range messages {
		if a, ok := messageParser(parseAdvertisement).contain(unix.RTM_NEWLINK, data); ok {
			list = append(list, a)
		}
	}
	return list, nil
}

// parseAdvertisement is the [messageParser] for RTM_NEWLINK and RTM_NEWNDUSEROPT.
func parseAdvertisement(kind uint16, data []byte) (a advertisement, ok bool) {
	switch kind {
	case unix.RTM_NEWLINK:
		return parseRouterFlags(data)
	case unix.RTM_NEWNDUSEROPT:
		return parseUserOption(data)
	}
	return advertisement{}, false
}

// parseRouterFlags reads struct ifinfomsg and the attribute IFLA_INET6_FLAGS within IFLA_PROTINFO.
func parseRouterFlags(data []byte) (advertisement, bool) {
	if len(data) < unix.SizeofIfInfomsg || data[0] != unix.AF_INET6 {
		return advertisement{}, false
	}
	index := int(int32(binary.NativeEndian.Uint32(data[4:])))
	value := attribute(attribute(data[unix.SizeofIfInfomsg:], unix.IFLA_PROTINFO), unix.IFLA_INET6_FLAGS)
	if len(value) != 4 {
		return advertisement{}, false
	}
	return advertisement{index: index, flags: binary.NativeEndian.Uint32(value)}, true
}

// attribute returns the value of the first attribute of a kind (struct rtattr), nil when there is none. The library's
// parser panics on a last attribute without padding.
func attribute(raw []byte, kind uint16) []byte {
	for len(raw) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(raw))
		if size < unix.SizeofRtAttr || size > len(raw) {
			return nil
		}
		if binary.NativeEndian.Uint16(raw[2:])&^unix.NLA_F_NESTED == kind {
			return raw[unix.SizeofRtAttr:size]
		}
		raw = raw[min((size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(raw)):]
	}
	return nil
}

const (
	sizeofNdUserOpt = 16  // struct nduseroptmsg
	routerAdvert    = 134 // its icmp_type
	optionRDNSS     = 25  // RFC 8106, section 5.1
	optionDNSSL     = 31  // section 5.2
)

// parseUserOption reads struct nduseroptmsg and the one option behind it.
func parseUserOption(data []byte) (advertisement, bool) {
	if len(data) < sizeofNdUserOpt || data[0] != unix.AF_INET6 || data[8] != routerAdvert {
		return advertisement{}, false
	}
	length := int(binary.NativeEndian.Uint16(data[2:]))
	index := int(int32(binary.NativeEndian.Uint32(data[4:])))
	raw := data[sizeofNdUserOpt:]
	if length > len(raw) {
		return advertisement{}, false
	}
	option, ok := parseDNSOption(raw[:length])
	return advertisement{index: index, option: option}, ok
}

// parseDNSOption reads an option as it is on the wire: type, length in units of 8 bytes, 2 reserved bytes, lifetime in
// seconds, addresses or names.
func parseDNSOption(raw []byte) (*dnsOption, bool) {
	if len(raw) < 8 || int(raw[1])*8 != len(raw) {
		return nil, false
	}
	o := &dnsOption{lifetime: seconds6(binary.BigEndian.Uint32(raw[4:]))}
	switch raw[0] {
	case optionRDNSS:
		for rest := raw[8:]; len(rest) >= 16 && len(o.servers) < maxServers; rest = rest[16:] {
			if server, ok := netip.AddrFromSlice(rest[:16]); ok && unicast6(server) {
				o.servers = append(o.servers, server)
			}
		}
		return o, len(o.servers) > 0
	case optionDNSSL:
		o.search = slices.DeleteFunc(parseNames(raw[8:]), func(name string) bool { return !hostName(name) })
		return o, len(o.search) > 0
	}
	return nil, false
}

// parseNames reads uncompressed domain names (RFC 1035, section 3.1), padded with zero bytes.
func parseNames(raw []byte) []string {
	var names []string
	var labels []string
	for len(raw) > 0 && len(names) < maxSearch {
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

// seconds6 converts a time of IPv6's protocols, where all bits set means forever.
func seconds6(value uint32) time.Duration {
	if value == infinite {
		return Forever
	}
	return time.Duration(value) * time.Second
}

// unicast6 reports whether a host can have address, be it only on the link.
func unicast6(address netip.Addr) bool {
	return address.Is6() && !address.Is4In6() && !address.IsUnspecified() && !address.IsLoopback() && !address.IsMulticast()
}
