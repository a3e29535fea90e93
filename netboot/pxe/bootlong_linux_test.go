//go:build long

package pxe

import (
	"net/netip"
	"testing"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

// undionly offers boot files. The first answer takes iPXE for PXE firmware.
type undionly struct {
	source   *source
	messages int
}

func (u *undionly) File(c server.Client) string {
	u.messages++
	c.IPXE = c.IPXE && u.messages > 2 // DISCOVER and REQUEST
	return u.source.File(c)
}

// TestUndionly boots a machine with BIOS by way of undionly.kpxe. QEMU has no other PXE firmware for BIOS than iPXE, so
// the first answer takes iPXE in the card's ROM for PXE firmware. It loads undionly.kpxe, which asks again.
func TestUndionly(t *testing.T) {
	dir, inside := artefacts(t)
	if !inside {
		return
	}
	network(t)
	tap(t, "tap0")
	advertise(t)
	var log nettest.Log
	o := bootOptions(t, dir, &log)
	o.setDefaults()
	a := newAttempts(o.Log, o.stallTime)
	s := newSource(o, a)
	t.Cleanup(a.close)
	files := server.FilesConfig{
		Log: o.Log, Listen: netip.MustParseAddrPort(own + ":0"), Interface: bridge, Source: s, Requests: a,
	}
	web, err := server.ListenHTTP(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	s.setAddress(web.Addr().String())
	files.Listen = netip.MustParseAddrPort(own + ":69")
	if _, err := server.ListenTFTP(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	loaders := &undionly{source: s}
	_, err = server.ListenDHCP(t.Context(), server.DHCPConfig{
		Log: o.Log, Interface: bridge, Address: netip.MustParsePrefix(own + "/24"),
		First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.20"),
		Boot: &server.Boot{Files: loaders},
	})
	if err != nil {
		t.Fatal(err)
	}
	boots(t, &log, first, qemu.BIOS, "virtio-net-pci", `firmware="BIOS PXE, amd64" loader=undionly\.kpxe`)
	if loaders.messages < 4 {
		t.Errorf("got %d messages, want four at least: those of undionly.kpxe, too", loaders.messages)
	}
}
