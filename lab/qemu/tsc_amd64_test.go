package qemu

import (
	"strconv"
	"testing"
	"time"
)

// The frequency agrees with a second, longer measurement.
func TestTSCFrequency(t *testing.T) {
	began, first := readTSC()
	time.Sleep(500 * time.Millisecond)
	ended, last := readTSC()
	want := float64(last-first) / ended.Sub(began).Seconds() / 1000
	if got := float64(tscKHz()); got < want*0.99 || got > want*1.01 {
		t.Errorf("got %.0f kHz, want %.0f", got, want)
	}
}

// Kernels that QEMU loads for emulated processors learn the frequency.
func TestKernelParameters(t *testing.T) {
	early := " tsc_early_khz=" + strconv.FormatInt(tscKHz(), 10)
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{Append: "quiet", Accel: "tcg"}, "quiet" + early},
		{Config{Append: "quiet", Accel: "kvm"}, "quiet"},
		{Config{Append: "quiet", Accel: "tcg", Arch: "arm64"}, "quiet"},
		{Config{Accel: "tcg"}, ""},
	} {
		if got := kernelParameters(tt.config); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.config, got, tt.want)
		}
	}
}
