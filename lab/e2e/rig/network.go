//go:build linux

package rig

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/lab/netns"
)

// NewNamespace creates a network namespace that is closed at the end of the test.
func NewNamespace(t *testing.T) *netns.Namespace {
	t.Helper()
	testenv.Root(t)
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// NewServer returns a server that is not started yet. It listens on the loopback interface of a namespace, from which
// its client connects.
func NewServer(t *testing.T, ns *netns.Namespace, handler http.Handler) *httptest.Server {
	t.Helper()
	l, err := ns.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &httptest.Server{Listener: l, Config: &http.Server{Handler: handler, ReadHeaderTimeout: OperationTimeout}}
}

// GuestAddress returns the address and port of a server for a guest on QEMU's own network.
func GuestAddress(s *httptest.Server) string {
	return fmt.Sprintf("%s:%d", Host, s.Listener.Addr().(*net.TCPAddr).Port)
}

// Capture is QEMU's capture of a network interface in a pcap file.
type Capture struct{ Path string }

// Arguments returns QEMU's arguments that capture the interface with the index nic.
func (c Capture) Arguments(nic int) []string {
	return []string{"-object", fmt.Sprintf("filter-dump,id=dump%d,netdev=net%d,file=%s", nic, nic, c.Path)}
}

// Sent returns a description of each packet that the interface with the MAC address has sent.
func (c Capture) Sent(t *testing.T, mac string) []string {
	t.Helper()
	data, err := os.ReadFile(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	address, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	const header, record = 24, 16
	if len(data) < header || binary.LittleEndian.Uint32(data) != 0xa1b2c3d4 {
		t.Fatalf("%s is not a capture", c.Path)
	}
	var packets []string
	for data = data[header:]; len(data) >= record; {
		end := record + int(binary.LittleEndian.Uint32(data[8:]))
		if end > len(data) {
			break // not yet complete
		}
		frame := data[record:end]
		data = data[end:]
		if len(frame) >= 14 && string(frame[6:12]) == string(address) {
			packets = append(packets, describe(frame))
		}
	}
	return packets
}

// describe returns a short description of an Ethernet frame.
func describe(frame []byte) string {
	kind, body := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	switch {
	case kind == 0x0806:
		return "arp"
	case kind == 0x0800 && len(body) >= 20:
		return transport("ip4", body[9], body[int(body[0]&15)*4:])
	case kind == 0x86dd && len(body) >= 40:
		return transport("ip6", body[6], body[40:])
	}
	return fmt.Sprintf("ethernet type %#04x", kind)
}

func transport(family string, protocol byte, body []byte) string {
	const syn, ack = 0x02, 0x10
	switch {
	case protocol == unix.IPPROTO_TCP && len(body) >= 20:
		if body[13]&(syn|ack) == syn { // a reset has neither
			return fmt.Sprintf("%s tcp connect to port %d", family, binary.BigEndian.Uint16(body[2:]))
		}
		return fmt.Sprintf("%s tcp from port %d", family, binary.BigEndian.Uint16(body))
	case protocol == unix.IPPROTO_UDP && len(body) >= 8:
		return fmt.Sprintf("%s udp to port %d", family, binary.BigEndian.Uint16(body[2:]))
	case protocol == unix.IPPROTO_ICMPV6, protocol == unix.IPPROTO_HOPOPTS: // neighbours, routers, multicast listeners
		return family + " icmp6"
	}
	return fmt.Sprintf("%s protocol %d", family, protocol)
}
