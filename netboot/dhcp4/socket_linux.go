package dhcp4

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/listing"
)

func (kernelSockets) broadcast(on *net.Interface) (net.PacketConn, error) {
	if dhcp.IsInfiniBand(on.HardwareAddr) {
		return broadcastInfiniBand(on.Index, dhcpv4.ClientPort)
	}
	return nclient4.NewRawUDPConn(on.Name, dhcpv4.ClientPort)
}

func (kernelSockets) unicast(on *net.Interface, source netip.Addr) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
				unix.BindToDevice(int(fd), on.Name))
		})
		return errors.Join(err, failed)
	}}
	host := net.JoinHostPort(source.String(), strconv.Itoa(dhcpv4.ClientPort))
	return config.ListenPacket(context.Background(), "udp4", host)
}

// infiniBandConn is a packet socket that broadcasts on an InfiniBand interface. Addresses there are longer than the
// library's (the kernel accepts more than the 8 bytes of struct sockaddr_ll in packet(7)).
type infiniBandConn struct {
	*packet.Conn
	index     int
	broadcast []byte
}

// broadcastInfiniBand opens a socket that works without an address.
func broadcastInfiniBand(index int, port int) (net.PacketConn, error) {
	broadcast, err := broadcastAddress(index)
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(&net.Interface{Index: index}, packet.Datagram, unix.ETH_P_IP, nil)
	if err != nil {
		return nil, err
	}
	return nclient4.NewBroadcastUDPConn(&infiniBandConn{conn, index, broadcast}, &net.UDPAddr{Port: port}), nil
}

// sockaddrLL is struct sockaddr_ll with space for the longest address (MAX_ADDR_LEN).
type sockaddrLL struct {
	family   uint16
	protocol [2]byte // in network order
	index    int32
	hardware uint16
	kind     uint8
	length   uint8
	address  [32]byte
}

// WriteTo broadcasts the payload; the address is ignored.
func (c *infiniBandConn) WriteTo(payload []byte, _ net.Addr) (int, error) {
	if len(payload) == 0 {
		return 0, nil
	}
	to := sockaddrLL{family: unix.AF_PACKET, index: int32(c.index), length: uint8(len(c.broadcast))}
	binary.BigEndian.PutUint16(to.protocol[:], unix.ETH_P_IP)
	copy(to.address[:], c.broadcast)
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var errno unix.Errno
	err = raw.Write(func(fd uintptr) bool {
		_, _, errno = unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&payload[0])), uintptr(len(payload)), 0,
			uintptr(unsafe.Pointer(&to)), unsafe.Offsetof(to.address)+uintptr(max(len(c.broadcast), 8)))
		return errno != unix.EAGAIN
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return 0, fmt.Errorf("broadcast on InfiniBand interface: %w", err)
	}
	return len(payload), nil
}

// broadcastAddress returns an interface's broadcast address, which on InfiniBand contains the partition key.
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
		address := listing.Attribute(answer[unix.SizeofIfInfomsg:], unix.IFLA_BROADCAST)
		if len(address) > 0 && len(address) <= dhcp.InfiniBandLen {
			return address, nil
		}
	}
	return nil, errors.New("read broadcast address: interface has none")
}
