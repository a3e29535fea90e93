package nvme

import (
	"encoding/binary"
	"fmt"
	"strings"
)

const (
	opIdentify    = 0x06
	identifyBytes = 4096
)

// Values of CNS (figure "CNS Values").
const (
	structureNamespace  = 0x00
	structureController = 0x01
	structureActive     = 0x02 // list of the namespaces attached to the controller
	structureAllocated  = 0x10 // list of the namespaces of the subsystem
)

const (
	maxSequential = 4096    // namespaces that are identified one by one
	maxListed     = 1 << 16 // namespaces in a list
)

// Version is a version of the base specification.
type Version uint32

// version12 is the first version that a controller reports.
const version12 Version = 0x00010200

// String returns the version in the form 1.4.0.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v>>16, v>>8&0xff, v&0xff) }

// Identity describes a controller (figure "Identify Controller Data Structure").
type Identity struct {
	Serial, Model, Firmware string
	Version                 Version // 0 before NVMe 1.2

	// SharedSubsystem means that other controllers may reach the NVM subsystem (CMIC: further ports and controllers,
	// SR-IOV and asymmetric access).
	SharedSubsystem bool

	SecurityCommands    bool // Security Send and Receive (OACS bit 0)
	FormatCommand       bool // Format NVM (OACS bit 1)
	NamespaceManagement bool // namespaces can be created and attached (OACS bit 3)

	FormatsAll    bool // a Format changes the block format of all namespaces (FNA bit 0)
	ErasesAll     bool // the erase of a Format covers all namespaces (FNA bit 1)
	FormatsCrypto bool // a Format can erase cryptographically (FNA bit 2)

	SanitizeCapabilities SanitizeCapabilities
	HighestNamespace     uint32 // largest valid number of a namespace (NN)
}

// Namespace describes a namespace (NVM command set specification, figure "Identify Namespace Data Structure").
type Namespace struct {
	ID             uint32
	Size, Capacity uint64 // in blocks; 0 for a namespace that is not active
	BlockBytes     int64  // without metadata; 0 if the data are invalid
	// Shared means that the namespace can be attached to several controllers (NMIC bit 0).
	Shared bool

	format     uint8 // number of the block format (FLBAS)
	extended   bool  // metadata are a part of each block (FLBAS bit 4)
	protection uint8 // DPS
}

// Identify reads the identity of the controller.
func (c Controller) Identify() (Identity, error) {
	data, err := c.identify(structureController, 0)
	if err != nil {
		return Identity{}, err
	}
	return parseIdentity(data), nil
}

// Namespace reads the description of a namespace that is attached to the controller.
func (c Controller) Namespace(id uint32) (Namespace, error) {
	data, err := c.identify(structureNamespace, id)
	if err != nil {
		return Namespace{}, err
	}
	return parseNamespace(id, data), nil
}

// identify reads a data structure of the controller. Errors name it.
func (c Controller) identify(structure, id uint32) ([]byte, error) {
	data := make([]byte, identifyBytes)
	err := c.transport.Send(Command{
		Opcode: opIdentify, Namespace: id, CDW10: structure, Data: data, Timeout: commandTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("NVMe identify (CNS 0x%02x): %w", structure, err)
	}
	return data, nil
}

func parseIdentity(data []byte) Identity {
	oacs, fna := binary.LittleEndian.Uint16(data[256:]), data[524]
	return Identity{
		Serial: text(data[4:24]), Model: text(data[24:64]), Firmware: text(data[64:72]),
		Version:         Version(binary.LittleEndian.Uint32(data[80:])),
		SharedSubsystem: data[76]&0x0f != 0,

		SecurityCommands: oacs&(1<<0) != 0, FormatCommand: oacs&(1<<1) != 0, NamespaceManagement: oacs&(1<<3) != 0,
		FormatsAll: fna&(1<<0) != 0, ErasesAll: fna&(1<<1) != 0, FormatsCrypto: fna&(1<<2) != 0,

		SanitizeCapabilities: SanitizeCapabilities(binary.LittleEndian.Uint32(data[328:])),
		HighestNamespace:     binary.LittleEndian.Uint32(data[516:]),
	}
}

// text returns the content of a field of ASCII characters that is padded with spaces.
func text(field []byte) string { return strings.Trim(string(field), " \x00") }

func parseNamespace(id uint32, data []byte) Namespace {
	flbas := data[26]
	n := Namespace{
		ID: id, Size: binary.LittleEndian.Uint64(data), Capacity: binary.LittleEndian.Uint64(data[8:]),
		Shared: data[30]&1 != 0, format: flbas&0x0f | flbas>>5&3<<4, extended: flbas&(1<<4) != 0, protection: data[29],
	}
	// LBADS of the figure "LBA Format Data Structure" is the binary logarithm, at least 9 for a valid format.
	if logarithm := data[128+4*int(n.format)+2]; logarithm >= 9 && logarithm < 32 {
		n.BlockBytes = 1 << logarithm
	}
	return n
}

// ActiveNamespaces lists the namespaces attached to the controller, whose identity is id, in ascending order. NVMe 1.1
// introduced the list (CNS 02h), NVMe 1.2 the version field. On controllers before 1.2, every namespace up to the
// highest number is identified; a size of zero means that it does not exist.
func (c Controller) ActiveNamespaces(id Identity) ([]uint32, error) {
	if id.Version >= version12 {
		return c.list(structureActive)
	}
	if id.HighestNamespace > maxSequential {
		return nil, fmt.Errorf("NVMe controller without a list of namespaces: got %d namespaces, want at most %d",
			id.HighestNamespace, maxSequential)
	}
	var active []uint32
	for number := uint32(1); number <= id.HighestNamespace; number++ {
		namespace, err := c.Namespace(number)
		if err != nil {
			return nil, fmt.Errorf("namespace %d: %w", number, err)
		}
		if namespace.Size != 0 {
			active = append(active, number)
		}
	}
	return active, nil
}

// AllocatedNamespaces lists the namespaces of the subsystem in ascending order, attached or not. Only controllers with
// NamespaceManagement have this list.
func (c Controller) AllocatedNamespaces() ([]uint32, error) { return c.list(structureAllocated) }

// list reads a list of namespaces. Each command returns up to 1,024 numbers greater than the last one; a zero ends the
// list.
func (c Controller) list(structure uint32) ([]uint32, error) {
	var list []uint32
	for last := uint32(0); ; {
		page, err := c.identify(structure, last)
		if err != nil {
			return nil, err
		}
		for ; len(page) > 0; page = page[4:] {
			number := binary.LittleEndian.Uint32(page)
			if number == 0 {
				return list, nil
			}
			if number <= last {
				return nil, fmt.Errorf("NVMe identify (CNS 0x%02x): namespace %d listed after %d",
					structure, number, last)
			}
			list, last = append(list, number), number
		}
		if len(list) >= maxListed {
			return nil, fmt.Errorf("NVMe identify (CNS 0x%02x): got %d namespaces, want fewer than %d",
				structure, len(list), maxListed)
		}
	}
}
