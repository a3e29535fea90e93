package netboot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"unsafe"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// An address of IP over InfiniBand (RFC 4391, section 9.1.1) is a queue pair, which is another one at each boot, and the
// identifier of the port, which ends in its GUID.
const (
	infiniBandLen = 20 // bytes
	guidLen       = 8
)

func isInfiniBand(mac net.HardwareAddr) bool { return len(mac) == infiniBandLen }

// infiniBandDUID begins the client identifier of an InfiniBand port: type 255 (RFC 4361), an IAID of zero, and a DUID by
// enterprise number, which is that of Mellanox; the GUID follows. Boot firmware and Ironic's ports have it so.
const infiniBandDUID = "\xff\x00\x00\x00\x00\x00\x02\x00\x00\x02\xc9\x00"

// clientID returns option 61: what the boot firmware of such a card sends.
func clientID(mac net.HardwareAddr) []byte {
	if isInfiniBand(mac) {
		return append([]byte(infiniBandDUID), mac[infiniBandLen-guidLen:]...)
	}
	return append([]byte{byte(iana.HWTypeEthernet)}, mac...)
}

// hardware sets what a message says of the client's hardware. An InfiniBand address does not fit: it is left out, the
// client identifier stands for it, and the answer has to be broadcast (RFC 4390, section 2.1).
func hardware(mac net.HardwareAddr) dhcpv4.Modifier {
	if !isInfiniBand(mac) {
		return dhcpv4.WithHwAddr(mac)
	}
	return func(m *dhcpv4.DHCPv4) {
		m.HWType, m.ClientHWAddr = iana.HWTypeInfiniband, net.HardwareAddr{}
		m.SetBroadcast()
	}
}

// answeredTo is the hardware address that answers to a client carry.
func answeredTo(mac net.HardwareAddr) net.HardwareAddr {
	if isInfiniBand(mac) {
		return net.HardwareAddr{}
	}
	return mac
}

// linkLayerID is hardware type and address as identifiers of DHCPv6 have them (RFC 8415, section 11.4); of an InfiniBand
// address the part that stays.
func linkLayerID(mac net.HardwareAddr) []byte {
	if isInfiniBand(mac) {
		return append([]byte{0, byte(iana.HWTypeInfiniband)}, mac[infiniBandLen-guidLen:]...)
	}
	return append([]byte{0, byte(iana.HWTypeEthernet)}, mac...)
}

// infiniBandConn is a packet socket that sends to everybody on an InfiniBand link: its addresses are longer than the
// library knows (struct sockaddr_ll of packet(7) has room for 8 bytes, the kernel takes more).
type infiniBandConn struct {
	*packet.Conn
	index     int
	everybody []byte
}

// broadcastInfiniBand opens a socket on a link without an address.
func broadcastInfiniBand(index int, port int) (net.PacketConn, error) {
	everybody, err := broadcastAddress(index)
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(&net.Interface{Index: index}, packet.Datagram, unix.ETH_P_IP, nil)
	if err != nil {
		return nil, err
	}
	return nclient4.NewBroadcastUDPConn(&infiniBandConn{conn, index, everybody}, &net.UDPAddr{Port: port}), nil
}

// sockaddrLL is struct sockaddr_ll with room for the longest address there is (MAX_ADDR_LEN).
type sockaddrLL struct {
	family   uint16
	protocol [2]byte // in network order
	index    int32
	hardware uint16
	kind     uint8
	length   uint8
	address  [32]byte
}

// WriteTo sends to everybody, whatever the address.
func (c *infiniBandConn) WriteTo(payload []byte, _ net.Addr) (int, error) {
	if len(payload) == 0 {
		return 0, nil
	}
	to := sockaddrLL{family: unix.AF_PACKET, index: int32(c.index), length: uint8(len(c.everybody))}
	binary.BigEndian.PutUint16(to.protocol[:], unix.ETH_P_IP)
	copy(to.address[:], c.everybody)
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var errno unix.Errno
	err = raw.Write(func(fd uintptr) bool {
		_, _, errno = unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&payload[0])), uintptr(len(payload)), 0,
			uintptr(unsafe.Pointer(&to)), unsafe.Offsetof(to.address)+uintptr(max(len(c.everybody), 8)))
		return errno != unix.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return 0, fmt.Errorf("send to everybody on the InfiniBand link: %w", err)
	}
	return len(payload), nil
}

// broadcastAddress asks the kernel for a link's broadcast address, which on InfiniBand names the partition.
func broadcastAddress(index int) ([]byte, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	answers, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, fmt.Errorf("read broadcast address: %w", err)
	}
	for _, answer := range answers {
		if len(answer) < unix.SizeofIfInfomsg {
			continue
		}
		if address := attribute(answer[unix.SizeofIfInfomsg:], unix.IFLA_BROADCAST); len(address) > 0 && len(address) <= infiniBandLen {
			return address, nil
		}
	}
	return nil, errors.New("read broadcast address: the link has none")
}
