package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/beevik/ntp"
	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
)

const (
	ntpTimeout = 5 * time.Second // of one question
	ntpTries   = 2
	clockTime  = 15 * time.Second // of all of it, with the server's name to be resolved
)

// TimeServers knows the NTP servers that the machine's network names.
type TimeServers interface{ TimeServers() []netip.Addr }

// The true time lies between these two. A time server that says otherwise is broken, or wants certificates of another
// time to be believed.
func released() time.Time { return time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC) }
func tooLate() time.Time  { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }

// What the network names is taken when it works, but a boot does not wait long for it: nobody asked for it.
const (
	maxTimeServers  = 3
	networkTimeWait = time.Second // for each
)

// setClock sets the system's clock and the hardware clock from the configured NTP server (SNTP, RFC 4330), or else from
// one that DHCP named. It matters because a certificate is not valid on a machine whose clock stands years back, and because the operating system that
// is started next begins with the hardware clock. That it failed is an error only where the operator wants it to be.
func (a *agent) setClock(ctx context.Context) error {
	c := a.config.Get()
	servers := a.timeServers(c.NTPServer)
	if len(servers) == 0 || !a.o.Destructive {
		return nil
	}
	limit := clockTime
	if c.NTPServer == "" {
		limit = networkTimeWait
	}
	var err error
	for _, server := range servers {
		if err = a.setClockFrom(ctx, server, limit); err == nil {
			return nil
		}
		a.log.Warn("clock not set", "server", server, "err", err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.FailIfClockNotSet {
		return fault.ClockSync("%w", err)
	}
	return nil
}

// timeServers is whom to ask: who the operator named, and only without that who the network named.
func (a *agent) timeServers(configured string) []string {
	if configured != "" {
		return []string{configured}
	}
	network, ok := a.o.Network.(TimeServers)
	if !ok {
		return nil
	}
	var servers []string
	for _, server := range network.TimeServers() {
		servers = append(servers, server.String())
	}
	return servers[:min(len(servers), maxTimeServers)]
}

func (a *agent) setClockFrom(ctx context.Context, server string, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	off, err := askTime(limited, server)
	if err != nil {
		return err
	}
	now := time.Now().Add(off)
	if now.Before(released()) || now.After(tooLate()) {
		return fmt.Errorf("ntp server %s: its time %s is absurd, want one between %s and %s", server,
			now.UTC().Format(time.RFC3339), released().Format(time.RFC3339), tooLate().Format(time.RFC3339))
	}
	if err := a.setTime(now); err != nil {
		return err
	}
	a.log.Info("clock set", "server", server, "off_by", off.Round(time.Millisecond))
	return nil
}

// askTime asks the NTP server by how much the system's clock is off.
func askTime(ctx context.Context, server string) (off time.Duration, err error) {
	options := ntp.QueryOptions{Timeout: ntpTimeout, Dialer: func(_, address string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "udp", address)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the wait for an answer
		}
		return conn, err
	}}
	for range ntpTries {
		var answer *ntp.Response
		if answer, err = ntp.QueryWithOptions(server, options); err == nil {
			err = answer.Validate()
		}
		if err == nil {
			return answer.ClockOffset, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return 0, fmt.Errorf("ntp server %s: %w", server, err)
}

// setTime sets the system's clock, and the hardware clock where there is one.
func setTime(now time.Time) error {
	tv := unix.NsecToTimeval(now.UnixNano())
	if err := unix.Settimeofday(&tv); err != nil {
		return fmt.Errorf("set the system's clock to %v: %w", now, err)
	}
	fd, err := unix.Open("/dev/rtc0", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // a machine without a hardware clock
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written through it
	utc := now.UTC()
	rtc := unix.RTCTime{
		Sec: int32(utc.Second()), Min: int32(utc.Minute()), Hour: int32(utc.Hour()),
		Mday: int32(utc.Day()), Mon: int32(utc.Month()) - 1, Year: int32(utc.Year()) - 1900,
	}
	if err := unix.IoctlSetRTCTime(fd, &rtc); err != nil {
		return fmt.Errorf("set the hardware clock: %w", err)
	}
	return nil
}
