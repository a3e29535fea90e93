//go:build long

package pxe

import (
	"net/netip"
	"testing"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

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
	s := &Server{options: o, attempts: a, source: newSource(o, a)}
	t.Cleanup(a.close)
	files := server.FilesConfig{
		Log: o.Log, Listen: netip.MustParseAddrPort(own + ":0"), Interface: bridge, Source: s.source, Request: a.done,
	}
	web, err := server.ListenHTTP(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	s.source.setAddress(web.Addr().String())
	files.Listen = netip.MustParseAddrPort(own + ":69")
	if _, err := server.ListenTFTP(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	messages := 0
	_, err = server.ListenDHCP(t.Context(), server.DHCPConfig{
		Log: o.Log, Interface: bridge, Address: netip.MustParsePrefix(own + "/24"),
		First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.20"),
		Boot: &server.Boot{File: func(c server.Client) string {
			messages++
			c.IPXE = c.IPXE && messages > 2 // DISCOVER and REQUEST
			return s.bootFile(c)
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	boots(t, &log, first, qemu.BIOS, "virtio-net-pci", `firmware="BIOS PXE, amd64" loader=undionly\.kpxe`)
	if messages < 4 {
		t.Errorf("got %d messages, want four at least: those of undionly.kpxe, too", messages)
	}
}
