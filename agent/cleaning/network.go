package cleaning

import (
	"fmt"

	"ironroot/storage/block"
)

// divideByReach divides disks into those that a step may change, those reached over a network, and those whose
// connection is not known. With the option erase_network_disks, a step may change all of them.
func (m *Steps) divideByReach(
	disks []block.Device,
) (allowed []block.Device, remote []block.Device, unknown []unknownDisk) {
	if m.o.Config.Get().EraseNetworkDisks {
		return disks, nil, nil
	}
	for _, d := range disks {
		local, err := d.IsLocal()
		switch {
		case err != nil:
			unknown = append(unknown, unknownDisk{d, err})
		case local:
			allowed = append(allowed, d)
		default:
			remote = append(remote, d)
		}
	}
	return allowed, remote, unknown
}

// unknownDisk is a disk of which it is not known whether it is reached over a network, and the reason.
type unknownDisk struct {
	block.Device
	err error
}

// networkReason returns why a step leaves a disk as it is.
func networkReason(d block.Device) string {
	return fmt.Sprintf("reached over a network (%s), and erase_network_disks is not set", d.Network)
}

// withoutNetwork returns the disks of a list that the step may overwrite, see divideByReach. It records the others as
// untouched. A disk fails if it is not known whether it is reached over a network.
func (r *diskRun) withoutNetwork(disks []block.Device) []block.Device {
	allowed, remote, unknown := r.m.divideByReach(disks)
	for _, d := range unknown {
		r.fail(d.Device, d.err)
	}
	for _, d := range remote {
		r.record(d, untouched(d, networkReason(d)))
	}
	return allowed
}

// Local implements [softraid.Disks]: it divides disks as divideByReach does, and logs the disks of a network. It
// returns an error if it is not known whether a disk is reached over a network.
func (m *Steps) Local(disks []block.Device) (allowed []block.Device, remote []block.Device, err error) {
	allowed, remote, unknown := m.divideByReach(disks)
	for _, d := range remote {
		m.o.Log.Warn("disk left as it is", "device", d.Path, "reason", networkReason(d))
	}
	if len(unknown) > 0 {
		return nil, nil, unknown[0].err
	}
	return allowed, remote, nil
}
