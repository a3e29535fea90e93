package listing

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is asked for that changes meanwhile.
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
