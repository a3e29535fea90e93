package sysfs

import "testing"

func TestParseMeminfo(t *testing.T) {
	const text = "MemTotal:        2971144 kB\nMemFree: many kB\nMemAvailable: 7 kB\nSwapMemCached: 1 kB\n"
	for name, want := range map[string]int64{
		"MemTotal": 2971144 << 10, "MemAvailable": 7 << 10, "MemFree": -1, "MemCached": -1,
	} {
		got, err := ParseMeminfo([]byte(text), name)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%s: got %d and %v, want %d", name, got, err, want)
		}
	}
}
