package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"ironroot/storage/sysfs"
)

// Subclasses of mass storage controllers (PCI Code and ID Assignment Specification, 1.2) as sysfs shows them.
const (
	classIDE   = "0x0101"
	classOther = "0x0180" // none of the other subclasses
)

// IsIDE reports whether the controller is one of IDE drives.
func (c UnboundController) IsIDE() bool { return strings.HasPrefix(c.Class, classIDE) }

// FunctionWithoutMedia describes a PCI function that never has media, such as IDE redirection. It returns "" for all
// other functions. It knows only functions of the classes IDE and other mass storage.
func FunctionWithoutMedia(id, class string) string {
	if !strings.HasPrefix(class, classIDE) && !strings.HasPrefix(class, classOther) {
		return ""
	}
	return functionsWithoutMedia[id]
}

// IDEDrive reports whether a drive can be behind an IDE controller without a driver, and describes what was found. It
// returns an error if this cannot be determined.
//
// Nothing is written to the controller. A controller whose I/O ports are switched off is not switched on: the kernel's
// generic driver leaves it as it is, too, because firmware switches off unused ones. Otherwise the alternate status
// register of each channel is read, which changes no state of a drive (ATA/ATAPI-7, volume 2). Without a drive the bus
// floats. The reads use the files of the controller in sysfs: unlike /dev/port, they contain the ports of this
// controller only, and the kernel allows them with Secure Boot.
func IDEDrive(s sysfs.Root, address string) (present bool, found string, err error) {
	dir, err := filepath.EvalSymlinks(s.Sys("bus/pci/devices", address))
	if err != nil {
		return false, "", err
	}
	command, err := readCommand(dir)
	switch {
	case err != nil:
		return false, "", err
	case command&commandIO == 0 && command&(commandMemory|commandMaster) != 0:
		return false, "", fmt.Errorf("%s: I/O ports of the PCI function are switched off, but it is in use "+
			"(command register %#04x)", dir, command)
	case command&commandIO == 0:
		return false, "its I/O ports are switched off", nil
	}
	if err := checkBridges(filepath.Dir(dir)); err != nil {
		return false, "", err
	}
	text, err := s.Files.Read(dir + "/resource")
	if err != nil {
		return false, "", err
	}
	ports, err := controlPorts(string(text))
	if err != nil {
		return false, "", fmt.Errorf("%s/resource: %w", dir, err)
	}
	var states []string
	for _, p := range ports {
		status, err := readAt(fmt.Sprintf("%s/resource%d", dir, p.resource), p.offset, 1)
		if err != nil {
			return false, "", err
		}
		states = append(states, fmt.Sprintf("status %#02x at I/O port %#x", status[0], p.port))
		present = present || !isFloating(status[0])
	}
	return present, strings.Join(states, ", "), nil
}

// isFloating reports whether a status belongs to a channel without drives: no drive drives the lines of the bus, and
// the host pulls down at most line 7 (ATA/ATAPI-7, volume 2). The status 0 can come from an empty channel of some
// controllers, but also from a packet device after a reset, or from drive 0 if only drive 1 is there.
func isFloating(status byte) bool { return status == 0xff || status == 0x7f }

// Configuration space (PCI Local Bus Specification 3.0, 6.1 and 6.7; PCI Power Management Specification 1.2, 3.2).
const (
	configSize     = 64 // of the header: reads beyond it reach registers of the manufacturer
	commandOffset  = 0x04
	commandIO      = 1 << 0
	commandMemory  = 1 << 1
	commandMaster  = 1 << 2
	statusOffset   = 0x06
	statusCaps     = 1 << 4
	capsOffset     = 0x34
	capPower       = 0x01
	powerOffset    = 4 // in the capability
	powerStateMask = 3
	maxCaps        = 48 // in 192 bytes
)

// readCommand returns the command register of a PCI function. It returns an error if the function does not answer, or
// decodes I/O ports and is in a state of low power.
func readCommand(dir string) (uint16, error) {
	file := dir + "/config"
	header, err := readAt(file, 0, configSize)
	if err != nil {
		return 0, err
	}
	if binary.LittleEndian.Uint16(header) == 0xffff {
		return 0, fmt.Errorf("%s: PCI function does not answer", file)
	}
	command := binary.LittleEndian.Uint16(header[commandOffset:])
	if command&commandIO == 0 || binary.LittleEndian.Uint16(header[statusOffset:])&statusCaps == 0 {
		return command, nil
	}
	at := header[capsOffset] &^ 3
	for range maxCaps {
		if at < configSize {
			return command, nil // the end of the list
		}
		capability, err := readAt(file, int64(at), powerOffset+2)
		if err != nil {
			return 0, err
		}
		if capability[0] == capPower {
			if state := capability[powerOffset] & powerStateMask; state != 0 {
				return 0, fmt.Errorf("%s: PCI function is in power state D%d, want D0", file, state)
			}
			return command, nil
		}
		at = capability[1] &^ 3
	}
	return 0, fmt.Errorf("%s: list of capabilities has no end", file)
}

// addressPattern matches the address of a PCI function.
var addressPattern = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// checkBridges returns an error if a bridge above a PCI function does not forward I/O. dir is the first bridge, or the
// root of the bus.
func checkBridges(dir string) error {
	for ; addressPattern.MatchString(filepath.Base(dir)); dir = filepath.Dir(dir) {
		command, err := readCommand(dir)
		if err != nil {
			return err
		}
		if command&commandIO == 0 {
			return fmt.Errorf("bridge %s forwards no I/O", filepath.Base(dir))
		}
	}
	return nil
}

// controlPort is the port of the alternate status register of a channel.
type controlPort struct {
	resource int   // number of the file
	offset   int64 // in it
	port     uint64
}

// Resources in the file of that name (Linux, include/linux/ioport.h).
const resourceIO = 0x100

// controlPorts returns the control ports of the channels, from the resources of the controller. Channels are pairs of a
// command block and a control block, whether the ports belong to the AT bus, which the kernel adds, or others (PCI IDE
// Controller Specification, 1.0).
func controlPorts(resources string) ([]controlPort, error) {
	const channels, blocks, alternateStatus = 2, 2, 2
	var starts, sizes [channels * blocks]uint64
	lines := strings.Split(resources, "\n")
	if len(lines) < len(starts) {
		return nil, fmt.Errorf("got %d lines, want at least %d", len(lines), len(starts))
	}
	for i := range starts {
		var start, end, flags uint64
		if _, err := fmt.Sscanf(lines[i], "0x%x 0x%x 0x%x", &start, &end, &flags); err != nil {
			return nil, fmt.Errorf("line %q: %w", lines[i], err)
		}
		if flags&resourceIO != 0 && start != 0 && end >= start {
			starts[i], sizes[i] = start, end-start+1
		}
	}
	var ports []controlPort
	for channel := range channels {
		command, control := channel*blocks, channel*blocks+1
		switch {
		case sizes[command] == 0 && sizes[control] == 0:
			continue // controllers with one channel
		case sizes[control] == 0:
			return nil, fmt.Errorf("channel %d has no control block", channel)
		}
		offset := int64(alternateStatus)
		switch size := sizes[control]; {
		case size == 1:
			offset = 0 // of the block, the AT bus has this port only
		case size <= alternateStatus:
			return nil, fmt.Errorf("control block of channel %d has %d ports", channel, size)
		}
		ports = append(ports, controlPort{control, offset, starts[control] + uint64(offset)})
	}
	if len(ports) == 0 {
		return nil, errors.New("no channel has I/O ports")
	}
	return ports, nil
}

// readAt reads size bytes at an offset of a file. The kernel requires reads of the width of a register.
func readAt(path string, offset int64, size int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	data := make([]byte, size)
	if _, err := f.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("read %d bytes of %s at %d: %w", size, path, offset, err)
	}
	return data, nil
}
