//go:build linux

package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/netboot/alternatives"
)

// Dial connects like a net.Dialer. If the kernel's routes do not lead to the address, it tries the links one after the
// other, gap apart. It returns the name of the link that connected, "" if the kernel's routes did.
func Dial(
	ctx context.Context, links []string, gap time.Duration, network, address string,
) (conn net.Conn, link string, err error) {
	ways := append([]string{""}, links...) // "" is the choice of the kernel's routes
	conn, by, err := alternatives.First(ctx, len(ways), gap, func(ctx context.Context, i int) (net.Conn, error) {
		return dialVia(ctx, ways[i], network, address)
	}, func(other net.Conn) { _ = other.Close() })
	if err != nil {
		return nil, "", err
	}
	return conn, ways[by], nil
}

// dialVia connects by one link, whatever the routes by others.
func dialVia(ctx context.Context, link, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	if link == "" {
		return dialer.DialContext(ctx, network, address)
	}
	dialer.Control = func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), link) })
		return errors.Join(err, failed)
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("by %s: %w", link, err)
	}
	return conn, nil
}
