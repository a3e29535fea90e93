package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"golang.org/x/sys/unix"
)

// openSocket opens a UDP socket that receives only from one interface, and that can broadcast. If it is exclusive, it
// fails if another program has the port, because it would take messages to this machine's address from that program.
// Programs that open the port later get it: they can serve other interfaces.
func openSocket(name string, port int, exclusive bool) (*net.UDPConn, error) {
	if exclusive {
		probe, err := bind(name, port, 0)
		if err == nil {
			err = probe.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	return bind(name, port, 1)
}

// bind opens the socket. reuse is the value of SO_REUSEADDR and SO_REUSEPORT.
func bind(name string, port, reuse int) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, reuse),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
				unix.BindToDevice(int(fd), name))
		})
		return errors.Join(err, failed)
	}}
	conn, err := config.ListenPacket(context.Background(), "udp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// releasePort frees the port of a socket that is about to be closed, by binding the socket to the loopback interface.
// Otherwise a program that is being started keeps the port in use: it has copies of all sockets until exec. Failures
// are ignored; the port is then free after exec.
func releasePort(conn syscall.Conn, name string) {
	if name == "" {
		return
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.BindToDevice(int(fd), "lo") })
	}
}

// onInterface returns a function for [net.ListenConfig.Control] that binds a socket to an interface. An address alone
// does not: the kernel accepts packets to any of its addresses on every interface. Connections inherit the binding.
func onInterface(name string) func(network, address string, raw syscall.RawConn) error {
	if name == "" {
		return nil
	}
	return func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), name) })
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("bind to interface %s: %w", name, err)
		}
		return nil
	}
}

// openRawSocket opens a socket that works without an address, and while a DHCP client of this machine runs.
func openRawSocket(name string) (net.PacketConn, error) {
	return nclient4.NewRawUDPConn(name, dhcpv4.ClientPort)
}
