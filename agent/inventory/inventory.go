package inventory

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"ironroot/agent/config"
	"ironroot/agent/inventory/smbios"
	"ironroot/agent/node"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Inventory describes the machine.
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

// CPU summarizes the processors. Frequency is a text in MHz.
type CPU struct {
	ModelName    string   `json:"model_name"`
	Frequency    string   `json:"frequency"`
	Count        int      `json:"count"`
	Architecture string   `json:"architecture"`
	Flags        []string `json:"flags"`
	SocketCount  int      `json:"socket_count"`
}

// Memory is the machine's memory: Total in bytes as managed by the kernel, PhysicalMB in MiB as installed.
type Memory struct {
	Total      int64  `json:"total"`
	PhysicalMB *int64 `json:"physical_mb"`
}

// Disk is a disk. Size and sector sizes are in bytes.
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

// SystemVendor describes the manufacturer and the product.
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

// Boot describes how the machine was booted.
type Boot struct {
	CurrentBootMode string  `json:"current_boot_mode"`
	PXEInterface    *string `json:"pxe_interface"`
}

// Options configure a Source.
type Options struct {
	System sysfs.Root
	// Disks returns the disks that the hardware managers list.
	Disks block.Lister
	// Config has the parameters of the kernel and of virtual media, and whether the inventories contain LLDP; nil has
	// no parameters and no LLDP.
	Config *config.Live
	// Node has the flag that omits all data of the BMC; nil omits none.
	Node *node.Cache
	// BMC connects to the BMC; nil is the kernel's driver, or none if System has another root than the machine's.
	BMC BMCOpener
	// Neighbours receives LLDP frames; nil receives none.
	Neighbours Neighbours
	Log        *slog.Logger
}

// Source collects inventories. It is safe for concurrent use.
type Source struct {
	o   Options // without a BMC if there is none
	net network

	tablesOnce sync.Once
	tables     *smbios.Table
	tablesErr  error

	bmcOnce    sync.Once
	bmcAnswers bmcAnswers
	bmcEnded   chan struct{} // closed when the BMC was queried or timed out
}

// New returns a Source. If Options.System has another root than the machine's, no facts outside of that root are
// requested from the kernel.
func New(o Options) *Source {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.System.Files == nil {
		o.System.Files = &sysfs.Reader{Log: o.Log}
	}
	if o.Disks == nil {
		o.Disks = block.MachineDisks{System: o.System}
	}
	thisMachine := o.System.Path == "" || o.System.Path == "/"
	if o.BMC == nil && thisMachine {
		o.BMC = ipmiDriver{}
	}
	s := &Source{o: o, net: noNetwork{}, bmcEnded: make(chan struct{})}
	if thisMachine {
		s.net = kernelNetwork{o.Log}
	}
	return s
}

// Collect reads the current data. A fact that cannot be read, or whose reading panics, is missing from the result and
// logged. It is an error if the interfaces cannot be listed, or if a panic occurs while interfaces or disks are listed.
// If ctx ends, Collect returns its error with an incomplete inventory. All facts are read concurrently, because
// each can take long.
func (s *Source) Collect(ctx context.Context) (*Inventory, error) {
	inv := &Inventory{}
	facts := goroutine.NewGroup()
	fact := func(read func()) {
		facts.Go(func() error {
			_ = goroutine.Catch(func() error { // a panic is logged
				read()
				return nil
			})
			return nil
		})
	}
	facts.Go(func() (err error) {
		if inv.Interfaces, err = s.Interfaces(ctx); err == nil {
			fact(func() { s.hearNeighbours(ctx, inv.Interfaces) })
		}
		return err
	})
	facts.Go(func() error {
		inv.Disks = s.disks(ctx)
		return nil
	})
	fact(func() {
		if s.o.Node == nil || !s.o.Node.SkipBMCDetect() {
			a := s.bmc(ctx)
			inv.BMCAddress, inv.BMCV6Address, inv.BMCMAC = a.v4, a.v6, a.mac
		}
	})
	fact(func() { inv.CPU = s.cpu() })
	fact(func() { inv.Memory = s.memory() })
	fact(func() { inv.SystemVendor = s.systemVendor() })
	fact(func() { inv.Boot = s.boot() })
	fact(func() { inv.Hostname = s.text(s.o.System.Proc("sys/kernel/hostname")) })
	if err := facts.Wait(); err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	return inv, ctx.Err()
}

func (s *Source) disks(ctx context.Context) []Disk {
	devices, err := s.o.Disks.Disks(ctx)
	if err != nil {
		s.o.Log.Warn("inventory without all disks", "err", err)
	}
	disks := make([]Disk, 0, len(devices))
	for _, d := range devices {
		disks = append(disks, DiskOf(d))
	}
	return disks
}

// DiskOf describes a block device in the form of the protocol.
func DiskOf(d block.Device) Disk {
	return Disk{
		Name:               d.Path,
		Model:              orNull(d.Model),
		Size:               d.Size,
		Rotational:         d.Rotational,
		WWN:                orNull(d.WWN),
		Serial:             orNull(d.Serial),
		Vendor:             orNull(d.Vendor),
		WWNWithExtension:   orNull(d.WWNWithExtension),
		WWNVendorExtension: orNull(d.WWNVendorExtension),
		HCTL:               orNull(d.HCTL),
		ByPath:             orNull(d.ByPath),
		LogicalSectors:     d.LogicalSector,
		PhysicalSectors:    d.PhysicalSector,
		Tran:               orNull(d.Transport),
	}
}

// orNull returns nil for an empty text, which encodes as JSON's null.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Read returns the content of a file of sysfs or procfs, limited in size and time. Failures and timeouts are logged.
func (s *Source) Read(path string) ([]byte, error) { return s.o.System.Files.Read(path) }

// text returns the trimmed content of a file, "" if it cannot be read: most files are optional.
func (s *Source) text(path string) string {
	data, err := s.Read(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(data), "\x00"))
}
