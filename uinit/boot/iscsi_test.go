//go:build linux

package boot

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/internal/pause"
	"ironroot/netboot"
)

// The table of the firmware is read unless the image is signed and its command line does not allow network disks.
func TestIBFTOfSignedImage(t *testing.T) {
	for _, tt := range []struct {
		params config.Params
		signed bool
		want   bool
	}{
		{signed: false, want: true},
		{signed: true, want: false},
		{signed: true, params: config.Params{"ironroot.network_disks": "1"}, want: true},
	} {
		settled := make(chan struct{})
		close(settled)
		var probed []string
		var log bytes.Buffer
		m := &Machine{
			Params: tt.params, Signed: tt.signed, Settled: settled, Log: slog.New(slog.NewTextHandler(&log, nil)),
			modules: fakeModules{err: errors.New("there is no table"), loads: &probed},
		}
		d := attachSAN(t.Context(), m, new(netboot.Network), func() bool { return false })
		if err := pause.Until(t.Context(), d.settled); err != nil {
			t.Fatal(err)
		}
		if read := slices.Contains(probed, "iscsi_ibft"); read != tt.want {
			t.Errorf("signed %t, %v: table read %t, want %t", tt.signed, tt.params, read, tt.want)
		}
		if named := strings.Contains(log.String(), "ironroot.network_disks=1"); named == tt.want {
			t.Errorf("signed %t, %v: got log %q, want the parameter named: %t", tt.signed, tt.params, &log, !tt.want)
		}
	}
}
