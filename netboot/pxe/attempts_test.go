package pxe

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/netboot/server"
)

// attemptLines runs f with attempts on a clock that stands still while f works, and returns the lines of the log
// without their time.
func attemptLines(t *testing.T, f func(a *attempts)) []string {
	t.Helper()
	var log testenv.Log
	synctest.Test(t, func(*testing.T) {
		a := newAttempts(slog.New(slog.NewTextHandler(&log, nil)), time.Minute)
		f(a)
		synctest.Wait()
		a.close()
	})
	var lines []string
	for line := range strings.Lines(log.String()) {
		_, text, _ := strings.Cut(line, "msg=")
		lines = append(lines, strings.TrimSpace(text))
	}
	return lines
}

var (
	pxeClient  = server.Client{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Arch: "amd64", UEFI: true}
	ipxeClient = server.Client{MAC: pxeClient.MAC, Arch: "amd64", UEFI: true, IPXE: true}
)

// fetch records the download of the initramfs, in which the machine gets a number of bytes of 1000.
func fetch(a *attempts, bytes int64) {
	const mac, name = "02:00:00:00:00:01", "initramfs-amd64"
	a.opened(mac, name, 1000)
	time.Sleep(10 * time.Minute) // longer than the time after which a silent machine is reported
	a.closed(mac, name)
	a.Done(server.Request{
		Client: "192.0.2.9:1234", Path: "/02-00-00-00-00-01/" + name, Status: 200, Bytes: bytes,
	})
}

// A start is one line, also if iPXE asks again or a download takes long.
func TestAttemptIsOneLine(t *testing.T) {
	got := attemptLines(t, func(a *attempts) {
		a.offered(pxeClient, "snponly.efi")
		time.Sleep(30 * time.Second)
		a.offered(ipxeClient, "amd64.ipxe")
		fetch(a, 1000)
		time.Sleep(time.Hour)
	})
	want := `"machine booted" mac=02:00:00:00:00:01 address=192.0.2.9 firmware="UEFI PXE, amd64" loader=snponly.efi ` +
		`duration=10m30s`
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want only %q", got, want)
	}
}

// A machine that stops is reported once, with its last step. It can continue later, or start again.
func TestAttemptStalls(t *testing.T) {
	stalled := `"machine did not boot" mac=02:00:00:00:00:01 address=192.0.2.9 firmware="UEFI PXE, amd64" ` +
		`last="fetched initramfs-amd64" silent=1m0s`
	for name, c := range map[string]struct {
		next     server.Client
		duration string
	}{
		"continues":    {ipxeClient, "1h20m0s"},
		"starts again": {pxeClient, "10m0s"},
	} {
		got := attemptLines(t, func(a *attempts) {
			a.offered(pxeClient, "snponly.efi")
			fetch(a, 999) // and then it is switched off
			time.Sleep(time.Hour)
			a.offered(c.next, "snponly.efi")
			fetch(a, 1000)
		})
		if len(got) != 2 || got[0] != stalled || !strings.HasPrefix(got[1], `"machine booted" `) ||
			!strings.HasSuffix(got[1], ` firmware="UEFI PXE, amd64" loader=snponly.efi duration=`+c.duration) {
			t.Errorf("%s: got %q, want %q and a start of %s", name, got, stalled, c.duration)
		}
	}
}

// The number of machines that are followed is limited. Those that have stalled are forgotten first.
func TestAttemptsAreLimited(t *testing.T) {
	attemptLines(t, func(a *attempts) {
		client := func(i int) server.Client {
			return server.Client{MAC: net.HardwareAddr{2, 0, 0, 1, byte(i >> 8), byte(i)}, Arch: "amd64"}
		}
		for i := range 2 * maxAttempts {
			a.offered(client(i), "undionly.kpxe")
			a.refuse(client(i), "reason")
		}
		a.mu.Lock()
		if len(a.current) != maxAttempts || len(a.refused) != maxAttempts {
			t.Errorf("got %d and %d machines, want %d", len(a.current), len(a.refused), maxAttempts)
		}
		a.mu.Unlock()
		time.Sleep(time.Hour)
		a.offered(pxeClient, "snponly.efi")
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.current[pxeClient.MAC.String()] == nil || len(a.current) != maxAttempts {
			t.Errorf("got %d machines, want %d with another one", len(a.current), maxAttempts)
		}
	})
}
