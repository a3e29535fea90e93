package listing

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tries is the number of requests for a list that changes meanwhile.
const tries = 5

// Whole calls list again when the kernel says that the list changed while it was written (NLM_F_DUMP_INTR). One that
// changed each time is returned with [netlink.ErrDumpInterrupted]: it is complete save for what changed.
func Whole[T any](list func() ([]T, error)) (items []T, err error) {
	for range tries {
		if items, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return items, err
}

// Links lists the machine's links, as Whole does.
func Links() ([]netlink.Link, error) {
	links, err := Whole(netlink.LinkList)
	if err != nil {
		return links, fmt.Errorf("list links: %w", err)
	}
	return links, nil
}

// Addresses lists the addresses of all links, as Whole does.
func Addresses() ([]netlink.Addr, error) {
	addresses, err := Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return addresses, fmt.Errorf("list addresses: %w", err)
	}
	return addresses, nil
}

// Attribute returns the value of the first attribute of a kind (struct rtattr), or nil. The parser of the netlink
// library panics if the last attribute has no padding.
func Attribute(raw []byte, kind uint16) []byte {
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
