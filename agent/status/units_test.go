package status

import (
	"testing"
	"time"
)

func TestSizeAndRate(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 3 << 19: "1.5 MiB", 1<<30 - 1: "1024.0 MiB",
		1 << 30: "1.0 GiB", 4 << 50: "4096.0 TiB",
	} {
		if got := Size(bytes); got != want {
			t.Errorf("size of %d: got %q, want %q", bytes, got, want)
		}
	}
	for _, tt := range []struct {
		bytes int64
		took  time.Duration
		want  string
	}{
		{10 << 20, 2 * time.Second, "5.0 MiB/s"},
		{5 << 30, 2 * time.Second, "2.5 GiB/s"},
		{3 << 9, time.Second, "1.5 KiB/s"},
		{0, time.Second, "0 bytes/s"},
		{10 << 20, 0, "-"},
	} {
		if got := Rate(tt.bytes, tt.took); got != tt.want {
			t.Errorf("%d bytes in %v: got %s, want %s", tt.bytes, tt.took, got, tt.want)
		}
	}
}
