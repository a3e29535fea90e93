package netboot

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkRequest asks for an interface that the kernel makes up, or for a change of one (RTM_NEWLINK of rtnetlink(7)). The
// library's functions for it know every kind of interface there is, which costs the ramdisk 150 KiB.
type linkRequest struct {
	index      int    // of the interface that is to be changed; 0 makes one
	kind       string // "vlan", "bond"
	name       string // of a new one
	attributes []linkAttribute
	data       []linkAttribute // what only this kind has
}

// linkAttribute is one attribute (struct rtattr): a number in the machine's order, an address, or a list.
type linkAttribute struct {
	kind  int
	value []byte
	list  []linkAttribute
}

// number is an attribute of so many bytes.
func number(kind, size, value int) linkAttribute {
	raw := binary.NativeEndian.AppendUint64(nil, uint64(value))
	switch size {
	case 1:
		raw = []byte{byte(value)}
	case 2:
		raw = binary.NativeEndian.AppendUint16(nil, uint16(value))
	case 4:
		raw = binary.NativeEndian.AppendUint32(nil, uint32(value))
	}
	return linkAttribute{kind: kind, value: raw}
}

// do sends the request and waits for the kernel's answer.
func (r linkRequest) do() error {
	flags := unix.NLM_F_ACK
	if r.index == 0 {
		flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, flags)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(r.index)
	request.AddData(message)
	if r.name != "" {
		request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(r.name)))
	}
	for _, a := range r.attributes {
		request.AddData(nl.NewRtAttr(a.kind, a.value))
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(r.kind))
	if len(r.data) > 0 {
		add(info.AddRtAttr(nl.IFLA_INFO_DATA, nil), r.data)
	}
	request.AddData(info)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("interface of kind %s: %w", r.kind, err)
	}
	return nil
}

func add(to *nl.RtAttr, list []linkAttribute) {
	for _, a := range list {
		add(to.AddRtAttr(a.kind, a.value), a.list)
	}
}
