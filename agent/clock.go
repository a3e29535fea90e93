package agent

import (
	"context"
	"fmt"
	"net"
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

// setClock sets the system's clock and the hardware clock from the configured NTP server (SNTP, RFC 4330). It matters
// because a certificate is not valid on a machine whose clock stands years back, and because the operating system that
// is started next begins with the hardware clock. That it failed is an error only where the operator wants it to be.
func (a *agent) setClock(ctx context.Context) error {
	c := a.config.Get()
	if c.NTPServer == "" || !a.o.Destructive {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, clockTime)
	defer cancel()
	off, err := askTime(limited, c.NTPServer)
	if err == nil {
		err = a.setTime(time.Now().Add(off))
	}
	switch {
	case err == nil:
		a.log.Info("clock set", "server", c.NTPServer, "off_by", off.Round(time.Millisecond))
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case c.FailIfClockNotSet:
		return fault.ClockSync("%w", err)
	}
	a.log.Warn("clock not set", "err", err)
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
