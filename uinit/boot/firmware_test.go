//go:build linux

package boot

import (
	"slices"
	"testing"
)

func TestMissingFirmware(t *testing.T) {
	var m missingFirmware
	for _, message := range []string{
		"e100 0000:00:03.0: firmware: failed to load e100/d102e_ucode.bin (-2)", // then found as .zst
		"e100 0000:00:03.0: Direct firmware load for e100/d101m_ucode.bin failed with error -2",
		"e100 0000:00:04.0: Direct firmware load for e100/d101m_ucode.bin failed with error -2",
		"bnx2x 0000:01:00.0: Direct firmware load for bnx2x/bnx2x-e2-7.13.21.0.fw failed with error -2",
		"e1000e 0000:00:02.0 eth0: registered PHC clock",
		"Direct firmware load for x failed",
	} {
		m.add(message)
	}
	if got, want := m.take(),
		[]string{"bnx2x/bnx2x-e2-7.13.21.0.fw (bnx2x)", "e100/d101m_ucode.bin (e100)"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	m.add("e100 0000:00:03.0: Direct firmware load for e100/d101m_ucode.bin failed with error -2")
	if got := m.take(); len(got) > 0 {
		t.Errorf("reported twice: %q", got)
	}
}
