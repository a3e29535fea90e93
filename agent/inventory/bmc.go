package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/storage/sysfs"
)

// bmcTimeout limits all requests to a BMC together: some BMCs answer none.
const bmcTimeout = 15 * time.Second

// Channels that can be LAN channels of a BMC.
const firstChannel, lastChannel = 1, 11

// Parameters of Get LAN Configuration (IPMI 2.0, table 23-4).
const (
	lanIPv4        = 3
	lanMAC         = 5
	lanIPv6Enables = 51
	lanIPv6Static  = 56
	lanIPv6Dynamic = 59
	lanIPv6Sets    = 16 // maximum number of addresses of each kind that are queried
)

// BMCOpener connects to the machine's baseboard management controller.
type BMCOpener interface {
	// OpenBMC connects through the character device with a path.
	OpenBMC(path string) (BMC, error)
}

// BMC is a connection to the machine's baseboard management controller.
type BMC interface {
	// LAN answers Get LAN Configuration (IPMI 2.0, 23.2) with the parameter's data, without completion code and
	// revision.
	LAN(channel, parameter, set byte) ([]byte, error)
	Close() error
}

// bmcAddresses are the BMC's addresses in the inventory; nil is unknown.
type bmcAddresses struct{ v4, v6, mac *string }

// bmc queries the BMC once per process, because the answers are slow and do not change. At the time limit it returns
// the answers so far.
func (s *Source) bmc(ctx context.Context) bmcAddresses {
	if s.o.BMC == nil {
		return bmcAddresses{}
	}
	devices := IPMIDevices(s.o.System)
	if len(devices) == 0 {
		return bmcAddresses{}
	}
	s.bmcOnce.Do(func() {
		goroutine.Go(func() error {
			s.askBMC(context.WithoutCancel(ctx), devices)
			return nil
		}, nil)
	})
	select {
	case <-s.bmcEnded:
	case <-ctx.Done():
	}
	result, _ := s.bmcAnswers.addresses()
	return result
}

// askBMC queries everything from the BMC through the first device that can be opened. It closes bmcEnded at the end or
// at the time limit.
func (s *Source) askBMC(ctx context.Context, devices []string) {
	ctx, cancel := context.WithTimeout(ctx, bmcTimeout)
	defer cancel()
	defer close(s.bmcEnded)
	var asked atomic.Pointer[string] // path of the device
	connected := make(chan error, 1)
	goroutine.Go(func() error { // not in this goroutine, because a request cannot be cancelled
		var problems []error
		for _, path := range devices {
			device, err := s.o.BMC.OpenBMC(path)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			asked.Store(&path)
			defer device.Close() //nolint:errcheck // nothing was written
			s.bmcAnswers.ask(ctx, device)
			return nil
		}
		return errors.Join(problems...)
	}, func(err error) { connected <- err })
	select {
	case err := <-connected:
		if err != nil {
			s.o.Log.Warn("BMC not reachable", "err", err)
			return
		}
	case <-ctx.Done():
	}
	if _, missing := s.bmcAnswers.addresses(); missing != "" {
		log := s.o.Log
		if path := asked.Load(); path != nil {
			log = log.With("device", *path)
		}
		log.Warn("BMC did not answer in time", "timeout", bmcTimeout, "missing", missing)
	}
}

// IPMIDevices returns the paths of the character devices of the IPMI driver, in the order of their numbers: ipmiN,
// ipmi/N and ipmidev/N in /dev. Number 0 can be missing.
func IPMIDevices(system sysfs.Root) []string {
	var found []string
	numbers := map[string]int{}
	for _, name := range []string{"ipmi", "ipmi/", "ipmidev/"} {
		prefix := system.Dev() + "/" + name
		paths, _ := filepath.Glob(prefix + "[0-9]*") // fails only for bad patterns
		for _, path := range paths {
			number, err := strconv.Atoi(strings.TrimPrefix(path, prefix))
			if err != nil {
				continue
			}
			if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
				found, numbers[path] = append(found, path), number
			}
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(numbers[a], numbers[b]) })
	return found
}

// bmcAnswers are the answers of a BMC so far. They can be read while the BMC is being queried.
type bmcAnswers struct {
	mu       sync.Mutex
	v4, v6   netip.Addr
	mac      net.HardwareAddr
	channel  byte // being queried
	complete bool // every channel was queried
}

// ask queries the LAN channels in order for the first IPv4 address, the first IPv6 address that is in use, and the MAC
// address of the first channel with either. It returns early when ctx ends.
func (a *bmcAnswers) ask(ctx context.Context, device BMC) {
	for channel := byte(firstChannel); channel <= lastChannel; channel++ {
		a.note(func() { a.channel = channel })
		v4 := channelIPv4(device, channel)
		if v4.IsValid() {
			a.note(func() {
				if !a.v4.IsValid() {
					a.v4 = v4
				}
			})
			a.askMAC(device, channel) // before IPv6, which needs up to 33 requests
		}
		v6 := channelIPv6(ctx, device, channel)
		if v6.IsValid() {
			a.note(func() {
				if !a.v6.IsValid() {
					a.v6 = v6
				}
			})
			if !v6.IsLinkLocalUnicast() {
				a.askMAC(device, channel)
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
	a.note(func() { a.complete = true })
}

// askMAC queries the MAC address of a channel unless one is known.
func (a *bmcAnswers) askMAC(device BMC, channel byte) {
	if a.mac != nil { // only this goroutine writes it
		return
	}
	if data, err := device.LAN(channel, lanMAC, 0); err == nil && len(data) >= 6 && !allZero(data[:6]) {
		a.note(func() { a.mac = net.HardwareAddr(data[:6]) })
	}
}

// note changes the answers under the lock.
func (a *bmcAnswers) note(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// addresses returns the answers in the inventory's form. An address that no channel has is reported as the protocol's
// value for none. If the queries were not completed, it is unknown, and missing names the unknown ones.
func (a *bmcAnswers) addresses() (result bmcAddresses, missing string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var unknown []string
	if a.v4.IsValid() {
		result.v4 = orNull(a.v4.String())
	} else if a.complete {
		result.v4 = orNull("0.0.0.0")
	} else {
		unknown = append(unknown, "IPv4 address")
	}
	if a.v6.IsValid() {
		result.v6 = orNull(a.v6.String())
	} else if a.complete {
		result.v6 = orNull("::/0")
	} else {
		unknown = append(unknown, "IPv6 address")
	}
	if result.mac = orNull(a.mac.String()); a.mac == nil && !a.complete {
		unknown = append(unknown, "MAC address")
	}
	if len(unknown) == 0 {
		return result, ""
	}
	missing = strings.Join(unknown, ", ")
	if a.channel != 0 {
		missing += fmt.Sprintf(" of channels %d to %d", a.channel, lastChannel)
	}
	return result, missing
}

func channelIPv4(device BMC, channel byte) netip.Addr {
	data, err := device.LAN(channel, lanIPv4, 0)
	if err != nil || len(data) < 4 {
		return netip.Addr{}
	}
	address := netip.AddrFrom4([4]byte(data[:4]))
	if address.IsUnspecified() {
		return netip.Addr{}
	}
	return address
}

// channelIPv6 returns the channel's first active address, those by DHCPv6 and SLAAC before static ones.
func channelIPv6(ctx context.Context, device BMC, channel byte) netip.Addr {
	enables, err := device.LAN(channel, lanIPv6Enables, 0)
	if err != nil || len(enables) < 1 || enables[0] != 1 && enables[0] != 2 {
		return netip.Addr{} // neither "IPv6 only" nor "both"
	}
	for _, parameter := range []byte{lanIPv6Dynamic, lanIPv6Static} {
		for set := byte(0); set < lanIPv6Sets && ctx.Err() == nil; set++ {
			data, err := device.LAN(channel, parameter, set)
			if err != nil {
				break
			}
			// set selector, source, address (16), prefix length, status (0 is active)
			if len(data) < 20 || data[19] != 0 {
				continue
			}
			if address := netip.AddrFrom16([16]byte(data[2:18])); !address.IsUnspecified() {
				return address
			}
		}
	}
	return netip.Addr{}
}

// lanData returns the data of an answer without completion code and parameter revision (IPMI 2.0, table 23-3).
func lanData(answer []byte) ([]byte, error) {
	if len(answer) < 2 {
		return nil, fmt.Errorf("got %d bytes, want two or more", len(answer))
	}
	if answer[0] != 0 {
		return nil, fmt.Errorf("completion code %#02x", answer[0])
	}
	return answer[2:], nil
}
