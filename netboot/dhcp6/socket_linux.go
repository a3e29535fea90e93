package dhcp6

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"golang.org/x/sys/unix"
)

func (kernelTransport) listen(ctx context.Context, name string) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.BindToDevice(int(fd), name))
		})
		return errors.Join(err, failed)
	}}
	return config.ListenPacket(ctx, "udp6", fmt.Sprintf("[::]:%d", dhcpv6.DefaultClientPort))
}
