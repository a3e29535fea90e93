package server

import (
	"context"
	"io"
	"net/netip"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// The port of each server is free when Close returns, also if the end of the context has stopped the server.
func TestReopen(t *testing.T) {
	if l, inside := nettest.New(t); inside {
		l.Cable("eth0", "192.0.2.2/24")
		nettest.Configure(t, "eth0", "192.0.2.1/24")
		own := netip.MustParseAddr("192.0.2.1")
		files := FilesConfig{Listen: netip.AddrPortFrom(own, 69), Interface: "eth0", Root: t.TempDir()}
		for name, open := range map[string]func(context.Context) (io.Closer, error){
			"dhcp": func(ctx context.Context) (io.Closer, error) {
				return ListenDHCP(ctx, DHCPConfig{
					Interface: "eth0", Address: netip.PrefixFrom(own, 24), Exclusive: true,
				})
			},
			"proxy dhcp": func(ctx context.Context) (io.Closer, error) {
				return ListenProxy(ctx, ProxyConfig{Interface: "eth0", Address: own})
			},
			"tftp": func(ctx context.Context) (io.Closer, error) { return ListenTFTP(ctx, files) },
			"http": func(ctx context.Context) (io.Closer, error) { return ListenHTTP(ctx, files) },
		} {
			t.Run(name, func(t *testing.T) { reopen(t, open) })
		}
	}
}

func reopen(t *testing.T, open func(context.Context) (io.Closer, error)) {
	stops := 0
	testenv.Reopen(t, func() (func() error, error) {
		ctx, cancel := context.WithCancel(t.Context())
		server, err := open(ctx)
		if err != nil {
			cancel()
			return nil, err
		}
		return func() error {
			if stops++; stops%3 == 0 {
				defer cancel()
			} else {
				cancel()
			}
			return server.Close()
		}, nil
	})
}
