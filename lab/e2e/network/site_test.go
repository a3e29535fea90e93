//go:build linux

package network

import (
	"context"
	"testing"
	"time"

	"ironroot/lab/conductor"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// boot starts the machine with the ramdisk and the address of Ironic.
func boot(s *rig.Site, parameters string, nics ...qemu.NIC) {
	s.T.Helper()
	s.BootAs(qemu.Config{NICs: nics}, "ipa-insecure=1 ipa-api-url="+s.Ironic.URL()+" "+parameters)
}

// answers runs a command through the callback URL, as Ironic does.
func answers(t *testing.T, s *rig.Site) {
	t.Helper()
	record, err := s.Node.Command(rig.Soon(t), "standby.get_partition_uuids", nil, true)
	if err != nil || record.Status != conductor.Succeeded {
		url, _ := s.Node.Callback()
		t.Errorf("a command through %s: got %+v, %v, want success", url, record, err)
	}
}

// connects waits until an address of the machine accepts connections, because a new address is not usable at once.
func connects(t *testing.T, s *rig.Site, address string) {
	t.Helper()
	ctx := rig.Soon(t)
	for {
		conn, err := s.NS.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: %v: %v", address, context.Cause(ctx), err)
		}
	}
}
