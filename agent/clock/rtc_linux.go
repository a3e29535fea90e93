package clock

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// readRTC returns the time of a hardware clock, interpreted as UTC.
func readRTC(file *os.File) (time.Time, error) {
	rtc, err := unix.IoctlGetRTCTime(int(file.Fd()))
	if err != nil {
		return time.Time{}, err
	}
	return time.Date(int(rtc.Year)+1900, time.Month(rtc.Mon)+1, int(rtc.Mday), int(rtc.Hour), int(rtc.Min),
		int(rtc.Sec), 0, time.UTC), nil
}

// setRTC sets a hardware clock to a time in UTC.
func setRTC(file *os.File, utc time.Time) error {
	return unix.IoctlSetRTCTime(int(file.Fd()), &unix.RTCTime{
		Sec: int32(utc.Second()), Min: int32(utc.Minute()), Hour: int32(utc.Hour()),
		Mday: int32(utc.Day()), Mon: int32(utc.Month()) - 1, Year: int32(utc.Year()) - 1900,
	})
}
