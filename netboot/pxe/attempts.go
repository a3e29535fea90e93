package pxe

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/netboot/server"
)

// attempts follows machines from their first message until they have fetched the last file, and logs one line for each
// attempt to boot: that it has succeeded, or where it has stopped.
type attempts struct {
	log   *slog.Logger
	stall time.Duration

	mu      sync.Mutex
	current map[string]*attempt // by MAC address
	refused map[string]bool     // MAC addresses of machines that are not served, whose line was logged
	closing bool
}

// attempt is one start of a machine, from its first message to its last file.
type attempt struct {
	firmware, loader, address string
	began                     time.Time
	last                      string // what happened last
	transfers                 int    // at the moment
	initramfs                 int64  // bytes
	stalled                   bool   // a line says that nothing has happened for too long
	timer                     *time.Timer
}

// maxAttempts limits the machines that are followed at a time, and those that are remembered as not served.
const maxAttempts = 4096

func newAttempts(log *slog.Logger, stall time.Duration) *attempts {
	return &attempts{log: log, stall: stall, current: map[string]*attempt{}, refused: map[string]bool{}}
}

// refuse logs that a machine is not served, once.
func (a *attempts) refuse(c server.Client, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	mac := c.MAC.String()
	if a.refused[mac] || len(a.refused) >= maxAttempts {
		return
	}
	a.refused[mac] = true
	a.log.Info("machine not served", "mac", mac, "firmware", firmwareName(c), "reason", reason)
}

// offered records that a machine was told its boot file.
func (a *attempts) offered(c server.Client, name string) {
	a.update(c.MAC.String(), func(attempt *attempt) {
		if attempt.stalled && !c.IPXE {
			attempt.firmware, attempt.loader, attempt.began = "", "", time.Now() // it was started again
		}
		if attempt.firmware == "" { // iPXE that was fetched asks again
			attempt.firmware = firmwareName(c)
		}
		if attempt.loader == "" {
			attempt.loader = name
		}
		attempt.last = "was offered " + name
	})
}

// opened records that a file is being sent.
func (a *attempts) opened(mac, name string, size int64) {
	a.update(mac, func(attempt *attempt) {
		attempt.transfers++
		attempt.last = "fetches " + name
		if isInitramfs(name) {
			attempt.initramfs = size
		}
	})
}

// closed records the end of opened.
func (a *attempts) closed(mac, name string) {
	a.update(mac, func(attempt *attempt) {
		attempt.transfers = max(0, attempt.transfers-1)
		attempt.last = "fetched " + name
	})
}

// Done records a request. A machine that has got the whole initramfs starts it.
func (a *attempts) Done(r server.Request) {
	mac, name, ok := parsePath(strings.TrimPrefix(r.Path, "/"))
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	attempt := a.current[mac.String()]
	if attempt == nil {
		return
	}
	if client, err := netip.ParseAddrPort(r.Client); err == nil {
		attempt.address = client.Addr().String()
	}
	if r.Status != 200 || r.Err != nil || !isInitramfs(name) || r.Bytes != attempt.initramfs {
		return
	}
	attempt.timer.Stop()
	delete(a.current, mac.String())
	a.log.Info("machine booted", "mac", mac.String(), "address", attempt.address, "firmware", attempt.firmware,
		"loader", attempt.loader, "duration", time.Since(attempt.began).Round(100*time.Millisecond))
}

// update changes the attempt of a machine, which begins now if there is none.
func (a *attempts) update(mac string, change func(*attempt)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	current := a.current[mac]
	if current == nil {
		if a.closing || !a.hasSpace() {
			return
		}
		current = &attempt{began: time.Now()}
		a.current[mac] = current
		current.timer = goroutine.AfterTime(a.stall, func() { a.stalled(mac, current) })
	}
	change(current)
	current.stalled = false
	if current.transfers > 0 {
		current.timer.Stop()
	} else {
		current.timer.Reset(a.stall)
	}
}

// hasSpace reports whether another machine can be followed. It forgets one that has stalled if there are too many.
func (a *attempts) hasSpace() bool {
	if len(a.current) < maxAttempts {
		return true
	}
	for mac, attempt := range a.current {
		if attempt.stalled {
			delete(a.current, mac)
			return true
		}
	}
	return false
}

// stalled reports an attempt in which nothing has happened for too long. It continues if the machine does.
func (a *attempts) stalled(mac string, attempt *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current[mac] != attempt || attempt.transfers > 0 || attempt.stalled {
		return
	}
	attempt.stalled = true
	a.log.Warn("machine did not boot", "mac", mac, "address", attempt.address, "firmware", attempt.firmware,
		"last", attempt.last, "silent", a.stall)
}

// close ends all attempts.
func (a *attempts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closing = true
	for _, attempt := range a.current {
		attempt.timer.Stop()
	}
	clear(a.current)
}

func isInitramfs(name string) bool { return strings.HasPrefix(name, initramfsName("")) }

// firmwareName describes the firmware of a client.
func firmwareName(c server.Client) string {
	switch {
	case c.Arch == "":
		return c.Code
	case c.IPXE:
		return "iPXE, " + c.Arch
	case c.HTTP:
		return "UEFI HTTP boot, " + c.Arch
	case c.UEFI:
		return "UEFI PXE, " + c.Arch
	default:
		return "BIOS PXE, " + c.Arch
	}
}
