package status

import (
	"fmt"
	"time"
)

// Size formats a number of bytes in the largest unit of which there is at least one, as "2.0 GiB".
func Size(bytes int64) string {
	value, units := float64(bytes), []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// Rate formats a number of bytes in a time as a size per second, "1.2 GiB/s". It is "-" without a time.
func Rate(bytes int64, d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return Size(int64(float64(bytes)/d.Seconds())) + "/s"
}
