//go:build linux

package boot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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
		var probed bool
		var log bytes.Buffer
		m := &Machine{
			Params: tt.params, Signed: tt.signed, Settled: settled, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Probe: func(_ context.Context, name string) error {
				probed = probed || name == "iscsi_ibft"
				return errors.New("there is no table")
			},
		}
		d := attachSAN(t.Context(), m, new(netboot.Network), func() bool { return false })
		if err := pause.Until(t.Context(), d.settled); err != nil {
			t.Fatal(err)
		}
		if probed != tt.want {
			t.Errorf("signed %t, %v: table read %t, want %t", tt.signed, tt.params, probed, tt.want)
		}
		if named := strings.Contains(log.String(), "ironroot.network_disks=1"); named == tt.want {
			t.Errorf("signed %t, %v: got log %q, want the parameter named: %t", tt.signed, tt.params, &log, !tt.want)
		}
	}
}
