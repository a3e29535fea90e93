package pxe

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ironroot/internal/grubconfig"
	"ironroot/netboot/server"
)

// Options describes what is served, and to whom.
type Options struct {
	Log     *slog.Logger // one line for each start of a machine; may be nil
	Details *slog.Logger // one line for each message and request; may be nil

	Interface string
	Address   netip.Addr // this machine's address on the interface; invalid means its first IPv4 address
	HTTPPort  uint16     // 0 means any free port

	Systems map[string]System // by GOARCH: amd64, arm64 or both
	// Loaders are the boot loaders by the names that LoaderNames returns.
	Loaders map[string][]byte
	// SecureBoot starts UEFI machines by shim and GRUB, which are signed, instead of iPXE.
	SecureBoot bool
	// Machines are the only machines that are served; none means all machines.
	Machines []Machine
	// Addresses makes this package assign addresses; nil leaves that to the network's DHCP server.
	Addresses *Addresses

	// searchTime is the duration of a search for other DHCP servers, searchInterval the time between two searches, and
	// stallTime how long a machine can be silent before its start has failed. Tests set them; 0 means the default.
	searchTime, searchInterval, stallTime time.Duration
}

// System is a kernel with its initramfs.
type System struct {
	Kernel, Initramfs string // paths of files, which are opened for each request
	Cmdline           string // kernel parameters
}

// Machine is a machine with parameters of its own.
type Machine struct {
	MAC        net.HardwareAddr
	Parameters string // kernel parameters in addition to the system's; may contain secrets
}

// Addresses are those that machines get.
type Addresses struct {
	First, Last netip.Addr
	Router      netip.Addr // invalid for none
	DNS         []netip.Addr
}

// Names of the boot loaders. The second stage of a shim has the name that is compiled into it.
const (
	BIOSLoader      = "undionly.kpxe"
	IPXELoaderAMD64 = "snponly.efi"
	IPXELoaderARM64 = "ipxe-arm64.efi"
	ShimLoaderAMD64 = "shimx64.efi"
	ShimLoaderARM64 = "shimaa64.efi"
	GRUBLoaderAMD64 = "grubx64.efi"
	GRUBLoaderARM64 = "grubaa64.efi"
)

var (
	ipxeLoaders = map[string]string{"amd64": IPXELoaderAMD64, "arm64": IPXELoaderARM64}
	shimLoaders = map[string]string{"amd64": ShimLoaderAMD64, "arm64": ShimLoaderARM64}
	grubLoaders = map[string]string{"amd64": GRUBLoaderAMD64, "arm64": GRUBLoaderARM64}
	// grubNames are GRUB's own names of architectures, its variable grub_cpu.
	grubNames = map[string]string{"amd64": "x86_64", "arm64": "arm64"}
)

// LoaderNames returns the names of the boot loaders that machines of the architectures need.
func LoaderNames(architectures []string, secureBoot bool) []string {
	var names []string
	for _, arch := range architectures {
		if arch == "amd64" {
			names = append(names, BIOSLoader)
		}
		if secureBoot {
			names = append(names, shimLoaders[arch], grubLoaders[arch])
		} else {
			names = append(names, ipxeLoaders[arch])
		}
	}
	return names
}

// check returns an error for options that would only be noticed when a machine boots. It does not contain kernel
// parameters, which may be secret.
func (o Options) check() error {
	architectures := make([]string, 0, len(o.Systems))
	for arch := range o.Systems {
		if ipxeLoaders[arch] == "" {
			return fmt.Errorf("architecture %q: want amd64 or arm64", arch)
		}
		architectures = append(architectures, arch)
	}
	if len(architectures) == 0 {
		return errors.New("no kernel to boot")
	}
	for _, name := range LoaderNames(architectures, o.SecureBoot) {
		if len(o.Loaders[name]) == 0 {
			return fmt.Errorf("no boot loader %s", name)
		}
	}
	seen := map[string]bool{}
	for _, m := range o.Machines {
		if len(m.MAC) != 6 {
			return fmt.Errorf("machine %q: want a MAC address of 6 bytes", m.MAC)
		}
		if seen[m.MAC.String()] {
			return fmt.Errorf("machine %s is listed twice", m.MAC)
		}
		seen[m.MAC.String()] = true
	}
	return errors.Join(o.checkParameters(), o.checkAddresses())
}

func (o Options) checkParameters() error {
	machines := o.Machines
	if len(machines) == 0 {
		machines = []Machine{{MAC: make(net.HardwareAddr, 6)}}
	}
	for _, m := range machines {
		for arch, system := range o.Systems {
			if _, err := system.script(arch, "http://192.0.2.1/", m); err != nil {
				return fmt.Errorf("kernel parameters of machine %s: %w", m.MAC, err)
			}
		}
	}
	return nil
}

func (o Options) checkAddresses() error {
	if o.Addresses == nil {
		return nil
	}
	a := *o.Addresses
	if len(o.Machines) == 0 {
		return errors.New("addresses are assigned to listed machines only, and none is listed")
	}
	if !a.First.Is4() || !a.Last.Is4() || a.Last.Less(a.First) {
		return fmt.Errorf("addresses from %s to %s: want two IPv4 addresses, the lower one first", a.First, a.Last)
	}
	count := 0
	for next := a.First; count < len(o.Machines) && !a.Last.Less(next); next = next.Next() {
		count++
	}
	if count < len(o.Machines) {
		return fmt.Errorf("addresses from %s to %s: %d for %d machines", a.First, a.Last, count, len(o.Machines))
	}
	return nil
}

// maxCmdline is the length of the longest command line that is accepted, in bytes. Kernels for x86-64 and arm64 read
// 2047 bytes, and boot loaders add the names of files.
const maxCmdline = 2047 - 128

// cmdline returns the kernel command line of a machine. BOOTIF tells the system which interface it was booted from, in
// the form of PXELINUX.
func (s System) cmdline(m Machine) (string, error) {
	line := strings.TrimSpace(strings.TrimSpace(s.Cmdline) + " " + strings.TrimSpace(m.Parameters))
	if !strings.Contains(" "+line, " BOOTIF=") {
		line = strings.TrimSpace(line + " BOOTIF=01-" + dashed(m.MAC))
	}
	for _, c := range line {
		if c < ' ' || c == 0x7f {
			return "", fmt.Errorf("control character %U", c)
		}
	}
	if len(line) > maxCmdline {
		return "", fmt.Errorf("%d bytes, want at most %d", len(line), maxCmdline)
	}
	return line, nil
}

// script returns the script of iPXE for a machine. base is the URL of the machine's files.
func (s System) script(arch, base string, m Machine) ([]byte, error) {
	line, err := s.cmdline(m)
	if err != nil {
		return nil, err
	}
	return server.Script{
		Kernel: base + kernelName(arch), Initrds: []string{base + initramfsName(arch)}, Cmdline: line,
	}.Render()
}

// grubConfig returns the configuration of GRUB for a machine. device is the server in GRUB's syntax.
func (s System) grubConfig(arch, device string, m Machine) ([]byte, error) {
	line, err := s.cmdline(m)
	if err != nil {
		return nil, err
	}
	base := device + "/" + dashed(m.MAC) + "/"
	return []byte(grubconfig.Boot(base+kernelName(arch), base+initramfsName(arch), line)), nil
}

// commonGRUBConfig is the configuration that GRUB reads first, for all machines. GRUB knows the MAC address of the card
// that it was loaded from.
var commonGRUBConfig = []byte("configfile /${net_default_mac}/${grub_cpu}.cfg\n")

func kernelName(arch string) string    { return "kernel-" + arch }
func initramfsName(arch string) string { return "initramfs-" + arch }

// dashed returns a MAC address without colons, which have a meaning in URLs and in GRUB's paths.
func dashed(mac net.HardwareAddr) string { return strings.ReplaceAll(mac.String(), ":", "-") }

// machine returns the machine with a MAC address, and whether it is served.
func (o Options) machine(mac net.HardwareAddr) (Machine, bool) {
	at := slices.IndexFunc(o.Machines, func(m Machine) bool { return bytes.Equal(m.MAC, mac) })
	if at >= 0 {
		return o.Machines[at], true
	}
	return Machine{MAC: mac}, len(o.Machines) == 0
}
