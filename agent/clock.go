package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/beevik/ntp"
	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
)

const (
	ntpTimeout = 5 * time.Second
	ntpTries   = 2
)

// setClock sets the system's clock and the hardware clock from the configured NTP server (SNTP, RFC 4330). It matters
// because a certificate is not valid on a machine whose clock stands years back. That it failed is an error only where
// the operator wants it to be.
func (a *agent) setClock(ctx context.Context) error {
	c := a.config.Get()
	if c.NTPServer == "" || !a.o.Destructive {
		return nil
	}
	err := a.askTime(ctx, c.NTPServer)
	if err == nil {
		return nil
	}
	if c.FailIfClockNotSet {
		return fault.ClockSync("%w", err)
	}
	a.log.Warn("clock not set", "err", err)
	return ctx.Err()
}

func (a *agent) askTime(ctx context.Context, server string) error {
	var err error
	for range ntpTries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var answer *ntp.Response
		if answer, err = ntp.QueryWithOptions(server, ntp.QueryOptions{Timeout: ntpTimeout}); err == nil {
			err = answer.Validate()
		}
		if err == nil {
			a.log.Info("clock set", "server", server, "off_by", answer.ClockOffset.Round(time.Millisecond))
			return setTime(time.Now().Add(answer.ClockOffset))
		}
	}
	return fmt.Errorf("ntp server %s: %w", server, err)
}

// setTime sets the system's clock, and the hardware clock where there is one.
func setTime(now time.Time) error {
	tv := unix.NsecToTimeval(now.UnixNano())
	if err := unix.Settimeofday(&tv); err != nil {
		return fmt.Errorf("set the system's clock to %v: %w", now, err)
	}
	fd, err := unix.Open("/dev/rtc0", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // a machine without a hardware clock
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
