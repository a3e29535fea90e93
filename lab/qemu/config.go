// Package qemu runs virtual machines for demonstrations and tests: QEMU started as a child process and driven over QMP,
// the QEMU Machine Protocol (https://www.qemu.org/docs/master/interop/qmp-spec.html).
//
// A Machine has the PC hardware a deploy ramdisk meets in the field: virtio, SATA, NVMe and SCSI disks, CD-ROM and USB
// storage, network boot, BIOS and UEFI firmware with and without Secure Boot. Its serial console is a Console that can
// be waited on without polling. Limits: x86_64 guests on the q35 board; aarch64 guests on the virt board with UEFI, always
// emulated, started by Config.Kernel and with no SATA disk; one serial port.
package qemu

import (
	"fmt"
	"os"
)

// Firmware is what the machine starts with.
type Firmware string

// The firmwares: SeaBIOS, OVMF, and OVMF with Secure Boot switched on and Microsoft's keys enrolled.
const (
	BIOS       Firmware = "bios"
	UEFI       Firmware = "uefi"
	UEFISecure Firmware = "uefi-secure"
)

// Bus is how a disk is attached.
type Bus string

// The buses. USB makes the disk a removable stick.
const (
	Virtio Bus = "virtio"
	SATA   Bus = "sata"
	NVMe   Bus = "nvme"
	SCSI   Bus = "scsi"
	USB    Bus = "usb"
)

// Action is what the machine does when the guest asks to be restarted or switched off.
type Action string

// The actions. Reset is meaningful for a reboot only, Pause for a power-off only: the machine then stays, switched off,
// until Reset and Resume, or Stop.
const (
	Reset    Action = "reset"
	Shutdown Action = "shutdown"
	Pause    Action = "pause"
)

// Fault makes the disk fail. It is given to QEMU's blkdebug driver.
type Fault struct {
	Type   string // "read", "write", "write-zeroes", "discard" or "flush"
	Errno  int    // what the guest's request fails with; 0 means EIO
	Offset int64  // bytes from the start of the disk; the sector there fails. -1 is every place
	Once   bool   // fail one request only
	After  int    // so many flushes of the guest go well before the fault is there
}

// Disk is one disk of a machine.
type Disk struct {
	Bus    Bus
	File   string // path of the image
	Format string // "raw" (also "") or "qcow2"
	Size   int64  // bytes; where File does not exist it is made, sparse and raw, of this size
	Sector int64  // bytes of a logical and physical sector, 0 means 512. SATA disks know only 512
	Serial string
	WWN    uint64 // 0 is none; SATA and SCSI only
	Boot   int    // boot order, 1 is first; 0 leaves the disk to the firmware's own order
	Faults []Fault
	Direct bool // bypass the host's page cache
	// BytesPerSecond limits reading and writing together; 0 is no limit.
	BytesPerSecond int64
	ReadOnly       bool
	NoDiscard      bool // ignore discards: what the guest did not overwrite stays in the file
	// Paths is the number of controllers that lead to a SCSI disk; 0 means 1. It is the disk's WWN that tells that they do.
	Paths int
	// Log is the path of a file that records every write and flush, for WriteLog; "" is none.
	Log string
}

// Forward makes a guest's TCP port reachable on this machine's loopback.
type Forward struct {
	Host  int // port on 127.0.0.1
	Guest int // port of the guest
}

// NIC is one network interface of a machine.
type NIC struct {
	MAC   string
	Model string // QEMU's name, "" means virtio-net-pci
	// Netdev is "user" (also ""), QEMU's own network with DHCP, where the host is 10.0.2.2 and the guest 10.0.2.15;
	// "tap:NAME" for a tap interface that exists; or QEMU's words for another back end, without the id.
	Netdev string
	// Restrict cuts the guest of a "user" network off from the host and from everything behind it. Forwards and TFTP
	// still work.
	Restrict bool
	TFTP     string // folder served by TFTP on a "user" network
	BootFile string // DHCP option 67 on a "user" network: a file of TFTP or an HTTP URL
	Forwards []Forward
	Boot     int  // boot order, 1 is first; 0 means that the interface cannot boot: it gets no option ROM
	NoROM    bool // UEFI boots from the interface by its own drivers, not by the iPXE of the option ROM
}

// Config describes a machine.
type Config struct {
	Name     string // shows in errors; "" means "machine"
	Dir      string // folder for the machine's own files: console log, QEMU's messages, UEFI variables. Must exist
	Arch     string // GOARCH of the guest: "amd64" ("" = amd64) or "arm64", which leaves no choice of Firmware and Accel
	Memory   int64  // bytes, 0 means 1 GiB
	CPUs     int    // 0 means 2
	Accel    string // "kvm", "tcg", or "" for KVM where it works
	Firmware Firmware
	Disks    []Disk
	NICs     []NIC
	CDROM    string // path of an ISO, "" means no drive
	CDBoot   int    // boot order of the CD-ROM

	// Kernel, Initrd and Append boot Linux directly, without a boot loader.
	Kernel, Initrd, Append string

	OnReboot   Action // Reset (also "") or Shutdown: QEMU ends
	OnPowerOff Action // Shutdown (also "") or Pause

	SMBIOS []string // values of QEMU's -smbios option
	Extra  []string // further arguments of QEMU
	NetNS  string   // path of a network namespace to run in, "" means the caller's

	// Line is called with every finished line of the serial console, without line end, from one goroutine.
	Line func(line string)
}

// KernelHints are kernel parameters that a guest wants where there is no hardware virtualisation: on a busy host the
// kernel would distrust the time-stamp counter and fall back to slow clocks, or give up because too few of the timer's
// interrupts arrived in the moment it counts them.
const KernelHints = "tsc=reliable no_timer_check"

// FirmwareARM is the UEFI firmware of arm64 machines; Debian's package is qemu-efi-aarch64.
const FirmwareARM = "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd"

// The places of OVMF that distributions use, the variables beside the code.
func firmwareFiles(f Firmware) (code, vars string, err error) {
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
	for _, c := range candidates {
		if exists(c[0]) && exists(c[1]) {
			return c[0], c[1], nil
		}
	}
	return "", "", fmt.Errorf("no %s firmware found (Debian's package is ovmf), looked for %s and others", f, candidates[0][0])
}

// Variables returns the path of the UEFI variables that a machine of this firmware begins with.
func Variables(f Firmware) (string, error) {
	_, vars, err := firmwareFiles(f)
	return vars, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
