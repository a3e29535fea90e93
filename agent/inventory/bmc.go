package inventory

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/u-root/u-root/pkg/ipmi"
)

// bmcTimeout bounds the whole conversation with a BMC: some answer none of the requests.
const bmcTimeout = 15 * time.Second

// Channels that may be LAN channels of a BMC.
const firstChannel, lastChannel = 1, 11

// Parameters of Get LAN Configuration (IPMI 2.0, table 23-4).
const (
	lanIPv4        = 3
	lanMAC         = 5
	lanIPv6Enables = 51
	lanIPv6Static  = 56
	lanIPv6Dynamic = 59
	lanIPv6Sets    = 16 // how many addresses of each sort are asked for at most
)

// BMC is a connection to the machine's baseboard management controller.
type BMC interface {
	// LAN answers Get LAN Configuration (IPMI 2.0, 23.2) with the parameter's data, without completion code and revision.
	LAN(channel, parameter, set byte) ([]byte, error)
	Close() error
}

// bmcAddresses are what the inventory says of the BMC; nil is unknown.
type bmcAddresses struct{ v4, v6, mac *string }

// bmc asks the BMC once in the process's life: the answers do not change, and they are slow.
func (s *Source) bmc(ctx context.Context) bmcAddresses {
	s.bmcOnce.Do(func() {
		if s.ipmi == nil || !s.hasIPMI() {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, bmcTimeout)
		defer cancel()
		answer := make(chan bmcAddresses, 1)
		go func() { // not in this goroutine, because a request cannot be cancelled
			device, err := s.ipmi()
			if err != nil {
				s.o.Log.Warn("BMC not reachable", "err", err)
				answer <- bmcAddresses{}
				return
			}
			defer device.Close() //nolint:errcheck // nothing was written
			answer <- askBMC(ctx, device)
		}()
		select {
		case s.bmcData = <-answer:
		case <-ctx.Done():
			s.o.Log.Warn("BMC did not answer in time", "device", "/dev/ipmi0", "err", ctx.Err())
		}
	})
	return s.bmcData
}

// hasIPMI tells whether there is a character device of the IPMI driver.
func (s *Source) hasIPMI() bool {
	for _, pattern := range []string{"ipmi0", "ipmi/0", "ipmidev/0"} {
		if info, err := os.Stat(s.o.System.Dev(pattern)); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
			return true
		}
	}
	return false
}

// askBMC goes through the LAN channels: the first IPv4 address, the first IPv6 address that is in use, and the MAC of the
// first channel with either.
func askBMC(ctx context.Context, device BMC) bmcAddresses {
	v4, v6 := netip.IPv4Unspecified(), netip.Addr{}
	var mac net.HardwareAddr
	for channel := byte(firstChannel); channel <= lastChannel && ctx.Err() == nil; channel++ {
		address := channelIPv4(device, channel)
		address6 := channelIPv6(device, channel)
		if v4.IsUnspecified() && address.IsValid() {
			v4 = address
		}
		if !v6.IsValid() && address6.IsValid() {
			v6 = address6
		}
		configured := address.IsValid() || address6.IsValid() && !address6.IsLinkLocalUnicast()
		if mac == nil && configured {
			if data, err := device.LAN(channel, lanMAC, 0); err == nil && len(data) >= 6 && !allZero(data[:6]) {
				mac = net.HardwareAddr(data[:6])
			}
		}
	}
	result := bmcAddresses{v4: orNull(v4.String()), mac: orNull(mac.String())}
	// The protocol's word for "no IPv6 address" is the unspecified prefix.
	result.v6 = orNull("::/0")
	if v6.IsValid() {
		result.v6 = orNull(v6.String())
	}
	return result
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
func channelIPv6(device BMC, channel byte) netip.Addr {
	enables, err := device.LAN(channel, lanIPv6Enables, 0)
	if err != nil || len(enables) < 1 || enables[0] != 1 && enables[0] != 2 {
		return netip.Addr{} // neither "IPv6 only" nor "both"
	}
	for _, parameter := range []byte{lanIPv6Dynamic, lanIPv6Static} {
		for set := byte(0); set < lanIPv6Sets; set++ {
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

// kernelIPMI talks to the BMC through the kernel's driver.
type kernelIPMI struct{ *ipmi.IPMI }

func openIPMI() (BMC, error) {
	device, err := ipmi.Open(0)
	if err != nil {
		return nil, fmt.Errorf("open IPMI device: %w", err)
	}
	return kernelIPMI{device}, nil
}

func (k kernelIPMI) LAN(channel, parameter, set byte) ([]byte, error) {
	const transport, getLANConfiguration = 0x0c, 0x02
	answer, err := k.SendRecv(transport, getLANConfiguration, []byte{channel, parameter, set, 0})
	if err != nil {
		return nil, fmt.Errorf("IPMI LAN channel %d parameter %d: %w", channel, parameter, err)
	}
	data, err := lanData(answer)
	if err != nil {
		return nil, fmt.Errorf("IPMI LAN channel %d parameter %d: %w", channel, parameter, err)
	}
	return data, nil
}

// lanData takes completion code and parameter revision off an answer (IPMI 2.0, table 23-3).
func lanData(answer []byte) ([]byte, error) {
	if len(answer) < 2 {
		return nil, fmt.Errorf("got %d bytes, want two or more", len(answer))
	}
	if answer[0] != 0 {
		return nil, fmt.Errorf("completion code %#02x", answer[0])
	}
	return answer[2:], nil
}
