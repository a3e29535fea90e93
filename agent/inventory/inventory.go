// Package inventory describes the machine in the protocol's words: interfaces, cpu, memory, disks, vendor, boot and BMC,
// read from sysfs, procfs, netlink and the SMBIOS tables. Keys, types and the meaning of a missing value are those of
// ironic-python-agent's list_hardware_info.
package inventory

import (
	"context"
	"errors"
	"log/slog"

	"ironroot/agent/config"
	"ironroot/storage/block"
)

// Inventory is what the machine is.
type Inventory struct {
	Interfaces   []Interface  `json:"interfaces"`
	CPU          CPU          `json:"cpu"`
	Disks        []Disk       `json:"disks"`
	Memory       Memory       `json:"memory"`
	BMCAddress   *string      `json:"bmc_address"`
	BMCV6Address *string      `json:"bmc_v6address"`
	BMCMAC       *string      `json:"bmc_mac,omitempty"`
	SystemVendor SystemVendor `json:"system_vendor"`
	Boot         Boot         `json:"boot"`
	Hostname     string       `json:"hostname"`
}

// Interface is a network interface.
type Interface struct {
	Name        string  `json:"name"`
	MACAddress  string  `json:"mac_address"`
	IPv4Address *string `json:"ipv4_address"`
	IPv6Address *string `json:"ipv6_address"`
	HasCarrier  bool    `json:"has_carrier"`
	LLDP        any     `json:"lldp"`
	Vendor      *string `json:"vendor"`
	Product     *string `json:"product"`
	ClientID    *string `json:"client_id"`
	BIOSDevName *string `json:"biosdevname"`
	SpeedMbps   *int    `json:"speed_mbps"`
	PCIAddress  *string `json:"pci_address"`
	Driver      *string `json:"driver"`
}

// CPU sums up the processors. Frequency is in MHz, as text.
type CPU struct {
	ModelName    string   `json:"model_name"`
	Frequency    string   `json:"frequency"`
	Count        int      `json:"count"`
	Architecture string   `json:"architecture"`
	Flags        []string `json:"flags"`
	SocketCount  int      `json:"socket_count"`
}

// Memory is the machine's memory: Total in bytes as the kernel manages it, PhysicalMB in MiB as it is plugged in.
type Memory struct {
	Total      int64  `json:"total"`
	PhysicalMB *int64 `json:"physical_mb"`
}

// Disk is a disk. Size is in bytes, the sector sizes too.
type Disk struct {
	Name               string  `json:"name"`
	Model              *string `json:"model"`
	Size               int64   `json:"size"`
	Rotational         bool    `json:"rotational"`
	WWN                *string `json:"wwn"`
	Serial             *string `json:"serial"`
	Vendor             *string `json:"vendor"`
	WWNWithExtension   *string `json:"wwn_with_extension"`
	WWNVendorExtension *string `json:"wwn_vendor_extension"`
	HCTL               *string `json:"hctl"`
	ByPath             *string `json:"by_path"`
	LogicalSectors     int64   `json:"logical_sectors"`
	PhysicalSectors    int64   `json:"physical_sectors"`
	Tran               *string `json:"tran"`
}

// SystemVendor is who made the machine.
type SystemVendor struct {
	ProductName  string   `json:"product_name"`
	SerialNumber string   `json:"serial_number"`
	Manufacturer string   `json:"manufacturer"`
	Firmware     Firmware `json:"firmware"`
}

// Firmware is the machine's firmware.
type Firmware struct {
	Vendor    string `json:"vendor"`
	Version   string `json:"version"`
	BuildDate string `json:"build_date"`
}

// Boot is how the machine was started.
type Boot struct {
	CurrentBootMode string  `json:"current_boot_mode"`
	PXEInterface    *string `json:"pxe_interface"`
}

// Options are what a Source reads from.
type Options struct {
	System block.System
	// Disks lists the disks as the hardware managers see them.
	Disks  func(ctx context.Context) ([]block.Device, error)
	Params config.Params
	// SkipBMC, when set and true, leaves out everything about the BMC.
	SkipBMC func() bool
	Log     *slog.Logger
}

// Source collects inventories.
type Source struct{ o Options }

// New returns a Source.
func New(o Options) *Source { return &Source{o: o} }

// Collect reads the machine anew. A fact that cannot be read is missing from the result; that is not an error.
func (s *Source) Collect(ctx context.Context) (*Inventory, error) {
	return nil, errors.New("not there yet")
}

// Cached returns the inventory of the first call that succeeded.
func (s *Source) Cached(ctx context.Context) (*Inventory, error) { return s.Collect(ctx) }

// Interfaces lists the network interfaces that have a MAC address.
func (s *Source) Interfaces(ctx context.Context) ([]Interface, error) {
	return nil, errors.New("not there yet")
}

// MACs returns the MAC addresses of all interfaces, in their order.
func (inv *Inventory) MACs() []string {
	macs := make([]string, 0, len(inv.Interfaces))
	for _, i := range inv.Interfaces {
		macs = append(macs, i.MACAddress)
	}
	return macs
}
