// Package qemu runs virtual machines for demonstrations and tests. QEMU runs as a child process and is controlled
// over QMP, the QEMU Machine Protocol (https://www.qemu.org/docs/master/interop/qmp-spec.html).
//
// A Machine emulates the PC hardware that a deploy ramdisk meets in the field: virtio, SATA, NVMe and SCSI disks,
// CD-ROM and USB storage, network boot, BIOS and UEFI firmware with and without Secure Boot. Its serial console is a
// Console, on which callers wait without polling.
//
// Limits: x86_64 guests use the q35 board. aarch64 guests use the virt board with UEFI; they are always emulated,
// do not boot from the network, and have no SATA disks. A machine has one serial port.
package qemu

import (
	"fmt"
	"os"
)

// Firmware is the firmware of a machine.
type Firmware string

// The firmwares: SeaBIOS, OVMF, and OVMF with Secure Boot enabled and Microsoft's keys enrolled. On arm64, AAVMF is the
// same as OVMF.
const (
	BIOS       Firmware = "bios"
	UEFI       Firmware = "uefi"
	UEFISecure Firmware = "uefi-secure"
)

// Bus is the bus that a disk is attached to.
type Bus string

// The buses. A disk on USB is a removable stick.
const (
	Virtio Bus = "virtio"
	SATA   Bus = "sata"
	NVMe   Bus = "nvme"
	SCSI   Bus = "scsi"
	USB    Bus = "usb"
)

// Action is the machine's reaction when the guest requests a restart or a power-off.
type Action string

// The actions. Reset is valid for a restart only, Pause for a power-off only: the paused machine stays switched off
// until PowerOn or Stop.
const (
	Reset    Action = "reset"
	Shutdown Action = "shutdown"
	Pause    Action = "pause"
)

// Fault describes requests of a disk that fail. QEMU's blkdebug driver injects it.
type Fault struct {
	Type   string // "read", "write", "write-zeroes", "discard" or "flush"
	Errno  int    // error number of the guest's request; 0 means EIO
	Offset int64  // bytes from the start of the disk; requests that include this sector fail. -1 means all requests
	Once   bool   // fail one request only
	After  int    // number of guest flushes that succeed before the fault occurs
}

// Disk describes a disk of a machine.
type Disk struct {
	Bus    Bus
	File   string // path of the image
	Format string // "raw" (also "") or "qcow2"
	Size   int64  // bytes; if File does not exist, a sparse raw image of this size is created
	Sector int64  // bytes of a logical and physical sector, 0 means 512. SATA disks support only 512
	Serial string
	WWN    uint64 // 0 means none; SATA and SCSI only
	Boot   int    // boot order, 1 is first; 0 leaves the position of the disk to the firmware
	Faults []Fault
	Direct bool // bypass the host's page cache
	// BytesPerSecond limits the sum of reads and writes; 0 means no limit.
	BytesPerSecond int64
	ReadOnly       bool
	NoDiscard      bool // ignore discards: data that the guest did not overwrite stays in the file
	// Paths is the number of controllers that lead to a SCSI disk; 0 means 1. The guest recognises the paths of one
	// disk by its WWN.
	Paths int
	// Log is the path of a file that records every write and flush for WriteLog; "" means none.
	Log string
}

// Forward forwards a TCP port of this machine's loopback to the guest.
type Forward struct {
	Host  int // port on 127.0.0.1; 0 means a free port, which Machine.Forwarded returns
	Guest int // port of the guest
}

// NIC describes a network interface of a machine.
type NIC struct {
	MAC   string
	Model string // QEMU's name, "" means virtio-net-pci
	// Netdev is "user" (also ""), QEMU's own network with DHCP, where the host is 10.0.2.2 and the guest 10.0.2.15;
	// "tap:NAME" for an existing tap interface; or QEMU's options for another back end, without the id.
	Netdev string
	// Restrict isolates the guest of a "user" network from the host and from all other networks. Forwards and TFTP
	// still work.
	Restrict bool
	TFTP     string // directory served by TFTP on a "user" network
	BootFile string // DHCP option 67 on a "user" network: a file served by TFTP or an HTTP URL
	Forwards []Forward
	Boot     int  // boot order, 1 is first; 0 means that the interface cannot boot and gets no option ROM
	NoROM    bool // UEFI boots from the interface with its own drivers, not with the iPXE of the option ROM
}

// Config describes a machine.
type Config struct {
	Name string // used in errors; "" means "machine"
	Dir  string // existing directory for the machine's own files: console log, QEMU's messages, UEFI variables
	// Arch is the GOARCH of the guest: "amd64" (also "") or "arm64", for which Accel is ignored, and without Firmware,
	// UEFI has no variables and starts Kernel only.
	Arch   string
	Memory int64  // bytes, 0 means 1 GiB
	CPUs   int    // 0 means 2
	Accel  string // "kvm", "tcg", or "" for KVM if it works and TCG otherwise
	// InstructionClock emulates processors whose instructions take a nanosecond each by the machine's clock, so that
	// durations of its work do not depend on the host's load. Other durations, such as durations of disks, still do.
	InstructionClock bool
	Firmware         Firmware
	Disks            []Disk
	NICs             []NIC
	CDROM            string // path of an ISO, "" means no CD-ROM drive
	CDBoot           int    // boot order of the CD-ROM
	// HTTPBoot is the URL that UEFI boots first, once; "" means none. The network cards need NoROM.
	HTTPBoot string

	// Kernel, Initrd and Append boot Linux directly, without a boot loader.
	Kernel, Initrd, Append string

	OnReboot   Action // Reset (also "") or Shutdown, with which QEMU exits
	OnPowerOff Action // Shutdown (also "") or Pause

	SMBIOS []string // values of QEMU's -smbios option
	Extra  []string // additional arguments of QEMU
	NetNS  string   // path of the network namespace to run in, "" means the caller's

	Lines Lines // of the serial console; may be nil
}

// ClockHints are kernel parameters for guests that run without hardware virtualisation. On a busy host, the kernel
// would otherwise reject the time-stamp counter and fall back to slow clocks, or panic because too few timer
// interrupts arrived while it counted them.
const ClockHints = "tsc=reliable no_timer_check"

// KernelHints are ClockHints and parameters that save time in an emulated machine. There, the kernel's mitigations of
// processor defects protect nothing. Its self-tests of cryptographic algorithms take a fifth of a start.
const KernelHints = ClockHints + " mitigations=off cryptomgr.notests"

// FirmwareARM is the path of the UEFI firmware without variables for arm64 machines. Debian's package is
// qemu-efi-aarch64.
const FirmwareARM = "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd"

// firmwareFiles returns the paths of the code and variables of OVMF or AAVMF. It tries those that distributions use.
func firmwareFiles(arch string, f Firmware) (code, vars string, err error) {
	pkg := "ovmf"
	candidates := [][2]string{
		{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},
		{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},
		{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},
	}
	if f == UEFISecure {
		candidates = [][2]string{
			{"/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"},
			{"/usr/share/OVMF/OVMF_CODE.secboot.fd", "/usr/share/OVMF/OVMF_VARS.ms.fd"},
			{"/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd"},
		}
	}
	if arch == "arm64" {
		const dir, vars = "/usr/share/AAVMF/AAVMF_", "VARS.ms.fd"
		pkg, candidates = "qemu-efi-aarch64", [][2]string{{dir + "CODE.fd", dir + "VARS.fd"}}
		if f == UEFISecure {
			candidates = [][2]string{{dir + "CODE.ms.fd", dir + vars}, {dir + "CODE.secboot.fd", dir + vars}}
		}
	}
	for _, c := range candidates {
		if exists(c[0]) && exists(c[1]) {
			return c[0], c[1], nil
		}
	}
	return "", "", fmt.Errorf("no %s firmware found (Debian's package is %s), looked for %s and others",
		f, pkg, candidates[0][0])
}

// Variables returns the path of the template of the UEFI variables for a firmware of amd64.
func Variables(f Firmware) (string, error) {
	_, vars, err := firmwareFiles("amd64", f)
	return vars, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
