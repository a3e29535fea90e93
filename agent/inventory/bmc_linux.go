package inventory

import (
	"fmt"

	"github.com/u-root/u-root/pkg/ipmi"
)

// kernelIPMI is a connection to the BMC through the kernel's driver.
type kernelIPMI struct{ *ipmi.IPMI }

// ipmiDriver connects to the BMC through the kernel's driver.
type ipmiDriver struct{}

// OpenBMC implements [BMCOpener].
func (ipmiDriver) OpenBMC(path string) (BMC, error) {
	device, err := ipmi.OpenPath(path)
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
