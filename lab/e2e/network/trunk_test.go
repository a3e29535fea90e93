//go:build linux

package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/lab/netns"
)

// trunk is the switch at the end of a machine's cable: a port that carries VLANs, each of which is an interface of a
// namespace. This process adds and removes the tags, because the kernel of the host may lack VLAN support. The cable
// is QEMU's stream network, in which each frame follows its length in four bytes.
type trunk struct {
	t     *testing.T
	path  string // of the socket
	vlans map[uint16]*os.File
	// announce is sent without a tag after each frame of the machine.
	announce []byte

	mu       sync.Mutex
	conn     net.Conn
	untagged int // frames that the machine sent without a tag
}

const (
	tagged    = 0x8100 // Ethernet type of a tag (IEEE 802.1Q)
	macBytes  = 12     // both addresses, which precede tag and type
	maxStream = 1 << 16
)

// newTrunk creates a port and, for each VLAN, the interface "NAME.ID" of the namespace with an address.
func newTrunk(t *testing.T, ns *netns.Namespace, name string, vlans map[uint16]string) *trunk {
	t.Helper()
	p := &trunk{t: t, path: filepath.Join(t.TempDir(), name), vlans: map[uint16]*os.File{}}
	listener, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	for id, address := range vlans {
		interfaceName := fmt.Sprintf("%s.%d", name, id)
		if err := ns.Do(func() (err error) {
			p.vlans[id], err = openTap(interfaceName, address)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.vlans[id].Close() })
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return // the test has ended
		}
		t.Cleanup(func() { _ = conn.Close() })
		p.mu.Lock()
		p.conn = conn
		p.mu.Unlock()
		for id, tap := range p.vlans {
			go p.toMachine(id, tap)
		}
		p.fromMachine(conn)
	}()
	return p
}

// netdev returns QEMU's option for the cable.
func (p *trunk) netdev() string { return "stream,server=off,addr.type=unix,addr.path=" + p.path }

// openTap creates an interface whose frames this process reads and writes, and brings it up with an address.
func openTap(name, address string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s: %w", name, err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), name)
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	parsed, err := netlink.ParseAddr(address)
	if err == nil {
		err = errors.Join(netlink.AddrAdd(link, parsed), netlink.LinkSetUp(link))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s: %w", name, err), file.Close())
	}
	return file, nil
}

// fromMachine forwards the machine's frames to their VLANs. Frames without a tag are dropped.
func (p *trunk) fromMachine(conn net.Conn) {
	header := make([]byte, 4)
	for {
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		size := binary.BigEndian.Uint32(header)
		if size > maxStream {
			p.t.Errorf("a frame of %d bytes", size)
			return
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		if p.announce != nil {
			p.send(p.announce)
		}
		if size < macBytes+4 || binary.BigEndian.Uint16(frame[macBytes:]) != tagged {
			p.mu.Lock()
			p.untagged++
			p.mu.Unlock()
			continue
		}
		id := binary.BigEndian.Uint16(frame[macBytes+2:]) & 0xfff
		if tap := p.vlans[id]; tap != nil {
			_, _ = tap.Write(slices.Delete(frame, macBytes, macBytes+4)) // frames are lost while an interface goes down
		}
	}
}

// toMachine adds the VLAN's tag to frames for the machine.
func (p *trunk) toMachine(id uint16, tap *os.File) {
	buffer := make([]byte, maxStream)
	for {
		n, err := tap.Read(buffer)
		if err != nil {
			return
		}
		if n < macBytes {
			continue
		}
		p.send(slices.Insert(slices.Clone(buffer[:n]), macBytes, tagged>>8, tagged&0xff, byte(id>>8), byte(id)))
	}
}

func (p *trunk) send(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The machine may have ended.
	_, _ = p.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
}

// lldpFrame returns a switch's LLDP frame with its name and its VLANs (IEEE 802.1Q, annex D.2.3).
func lldpFrame(system string, vlans ...uint16) []byte {
	frame := []byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xcc" +
		"\x02\x07\x04\x02\x00\x00\x00\x00\x01" + "\x04\x05\x05swp1" + "\x06\x02\x00\x78")
	frame = append(append(frame, 0x0a, byte(len(system))), system...)
	for _, id := range vlans {
		name := fmt.Sprintf("vlan%d", id)
		frame = append(frame, 0xfe, byte(7+len(name)), 0x00, 0x80, 0xc2, 0x03, byte(id>>8), byte(id), byte(len(name)))
		frame = append(frame, name...)
	}
	return append(frame, 0, 0)
}
