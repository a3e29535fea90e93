package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"ironroot/netboot/sntp"
)

// maxAddresses bounds how many addresses of one name are asked.
const maxAddresses = 8

// Ask asks all servers, names or addresses, and all addresses of a name, at the same time until ctx ends, and returns
// the first answer whose time passes Check, and whose it is. Servers that fail before that are warned about by name. The
// error is that of all of them.
func Ask(ctx context.Context, servers []string, log *slog.Logger) (sntp.Answer, string, error) {
	return first(ctx, servers, func(ctx context.Context, server string) (sntp.Answer, error) {
		answer, err := askServer(ctx, server)
		if err != nil && !errors.Is(err, context.Canceled) {
			log.Warn("a time server is not followed", "server", server, "err", err)
		}
		return answer, err
	})
}

// askServer asks one server at all its addresses and believes the first answer that is plausible.
func askServer(ctx context.Context, server string) (sntp.Answer, error) {
	host, port := sntp.Address(server)
	addresses, err := resolve(ctx, host)
	if err != nil {
		return sntp.Answer{}, fmt.Errorf("time server %s: %w", server, err)
	}
	answer, _, err := first(ctx, addresses, func(ctx context.Context, address netip.Addr) (sntp.Answer, error) {
		answer, err := sntp.Ask(ctx, net.JoinHostPort(address.String(), port))
		if err == nil {
			if err = Check(answer.Now()); err != nil {
				err = fmt.Errorf("time server %s: %w", server, err)
			}
		}
		return answer, err
	})
	return answer, err
}

// resolve returns the addresses of a host, which may be one itself.
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

// first asks everybody at the same time and returns the first success and whose it is, or else all errors. ask has to
// end with its context.
func first[T, R any](ctx context.Context, everybody []T, ask func(context.Context, T) (R, error)) (R, T, error) {
	type result struct {
		answer R
		who    T
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, len(everybody)) // so that the others end, too
	for _, who := range everybody {
		go func() {
			answer, err := ask(ctx, who)
			results <- result{answer, who, err}
		}()
	}
	var failed []error
	for range everybody {
		r := <-results
		if r.err == nil {
			return r.answer, r.who, nil
		}
		failed = append(failed, r.err)
	}
	var none result
	return none.answer, none.who, errors.Join(failed...)
}
