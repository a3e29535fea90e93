package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"ironroot/internal/goroutine"
	"ironroot/internal/hostname"
	"ironroot/netboot/alternatives"
	"ironroot/netboot/sntp"
)

const (
	maxServers   = 16 // further ones are ignored
	maxAddresses = 8  // per name; further ones are ignored
)

// Ask queries all servers, names or addresses, and all addresses of a name, concurrently until ctx ends. It returns the
// first answer whose time passes Check, and its server. servers is called again when the channel of changed, which can
// be nil, is closed, and new servers are queried, too. Failures of servers are logged, and returned joined if all fail.
func Ask(
	ctx context.Context, servers func() []string, changed func() <-chan struct{}, log *slog.Logger,
) (sntp.Answer, string, error) {
	return askAll(ctx, servers, changed, askServer, log)
}

// askAll is Ask with askOne in place of askServer.
func askAll(
	ctx context.Context, servers func() []string, changed func() <-chan struct{},
	askOne func(context.Context, string) (sntp.Answer, error), log *slog.Logger,
) (sntp.Answer, string, error) {
	type result struct {
		answer sntp.Answer
		server string
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, maxServers) // buffered, so that the other goroutines end, too
	asked, pending := map[string]bool{}, 0
	var failed []error
	for {
		change := changed()
		for _, server := range servers() {
			if asked[server] || len(asked) == maxServers {
				continue
			}
			asked[server] = true
			pending++
			var answer sntp.Answer
			goroutine.Go(func() (err error) {
				answer, err = askOne(ctx, server)
				return err
			}, func(err error) { results <- result{answer, server, err} })
		}
		if pending == 0 {
			return sntp.Answer{}, "", errors.Join(append(failed, errors.New("no usable time server"))...)
		}
		select {
		case r := <-results:
			if r.err == nil {
				return r.answer, r.server, nil
			}
			pending--
			log.Warn("time server not used", "server", r.server, "err", r.err)
			failed = append(failed, r.err)
		case <-change:
		}
	}
}

// askServer queries all addresses of a server, and returns the first answer whose time passes Check.
func askServer(ctx context.Context, server string) (sntp.Answer, error) {
	host, port, err := hostname.ParsePort(server, sntp.Port)
	if err != nil {
		return sntp.Answer{}, fmt.Errorf("time server: %w", err)
	}
	addresses, err := resolve(ctx, host)
	if err != nil {
		return sntp.Answer{}, fmt.Errorf("time server %s: %w", server, err)
	}
	answer, _, err := alternatives.First(ctx, len(addresses), 0, func(ctx context.Context, i int) (sntp.Answer, error) {
		answer, err := sntp.Ask(ctx, net.JoinHostPort(addresses[i].String(), port))
		if err == nil {
			if err = Check(answer.Now()); err != nil {
				err = fmt.Errorf("time server %s: %w", server, err)
			}
		}
		return answer, err
	}, nil)
	return answer, err
}

// resolve returns the addresses of a host name, or the address that host is.
func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	return addresses[:min(len(addresses), maxAddresses)], nil
}
