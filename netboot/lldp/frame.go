package lldp

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/lldp"
)

// Bounds of what is kept of a link. A TLV cannot be longer than its length field of 9 bits says.
const (
	maxFrame = 9216 // bytes; the largest jumbo frame that switches pass on
	maxText  = 255  // bytes of a name for people, which is also the longest that IEEE 802.1AB allows
)

// TLV is one element of a frame: its type (0 to 127) and its value of at most 511 bytes.
type TLV struct {
	Type  uint8
	Value []byte
}

// Frame is what one LLDP frame said.
type Frame struct {
	// TLVs are in the frame's order and include the End TLV; nil means that no frame was heard.
	TLVs []TLV
	// Complete says that the frame has all that IEEE 802.1AB demands: chassis, port and time to live in this order,
	// and the end.
	Complete bool

	leaving bool // the neighbour said that it goes away
}

// memory returns the number of bytes of memory that a frame takes, including the headers of its TLVs.
func (f Frame) memory() int {
	const header = 32 // bytes of a TLV without its value
	size := cap(f.TLVs) * header
	for _, t := range f.TLVs {
		size += cap(t.Value)
	}
	return size
}

// Neighbour is who sent a frame, in words for people: control characters are taken out, and bytes that are no text are
// shown in hexadecimal. "" stands for what the frame does not say.
type Neighbour struct {
	System          string // its name, or else its chassis id
	Port            string // its port id
	PortDescription string
}

var errNotLLDP = errors.New("no LLDP frame")

// Parse reads an Ethernet frame, header included. When the frame breaks the rules of IEEE 802.1AB the error says how,
// and the frame holds all TLVs before the place where it does so. Padding after the End TLV is left out.
func Parse(data []byte) (Frame, error) {
	var outer ethernet.Frame
	if err := outer.UnmarshalBinary(data[:min(len(data), maxFrame)]); err != nil {
		return Frame{}, fmt.Errorf("ethernet frame of %d bytes: %w", len(data), err)
	}
	if outer.EtherType != lldp.EtherType {
		return Frame{}, fmt.Errorf("%w: got ethertype %#04x, want %#04x", errNotLLDP, uint16(outer.EtherType), uint16(lldp.EtherType))
	}
	tlvs, length, err := walk(outer.Payload)
	f := Frame{TLVs: tlvs}
	if err != nil {
		return f, err
	}
	var unit lldp.Frame
	if err := unit.UnmarshalBinary(outer.Payload[:length]); err != nil {
		return f, fmt.Errorf("LLDP frame of %d TLVs: %w", len(tlvs), err)
	}
	f.Complete, f.leaving = true, unit.TTL == 0
	return f, nil
}

// walk splits a data unit into its TLVs up to the End TLV, and returns how many bytes they take.
func walk(data []byte) (tlvs []TLV, length int, err error) {
	for {
		rest := data[length:]
		if len(rest) < 2 {
			return tlvs, length, fmt.Errorf("LLDP frame ends at byte %d without an End TLV", length)
		}
		header := binary.BigEndian.Uint16(rest)
		kind, size := uint8(header>>9), int(header&lldp.TLVLengthMax)
		rest = rest[2:]
		if len(rest) < size {
			return tlvs, length, fmt.Errorf("TLV of type %d at byte %d: got %d bytes, want %d", kind, length, len(rest), size)
		}
		tlvs = append(tlvs, TLV{kind, slices.Clone(rest[:size])})
		length += 2 + size
		if kind == uint8(lldp.TLVTypeEnd) {
			return tlvs, length, nil
		}
	}
}

// Neighbour says who sent the frame.
func (f Frame) Neighbour() Neighbour {
	n := Neighbour{
		System:          text(f.first(lldp.TLVTypeSystemName)),
		PortDescription: text(f.first(lldp.TLVTypePortDescription)),
	}
	if id := f.first(lldp.TLVTypePortID); len(id) > 0 {
		subtype := lldp.PortIDSubtype(id[0])
		n.Port = identifier(id[1:], subtype == lldp.PortIDSubtypeMACAddress, subtype == lldp.PortIDSubtypeNetworkAddress)
	}
	if id := f.first(lldp.TLVTypeChassisID); n.System == "" && len(id) > 0 {
		subtype := lldp.ChassisIDSubtype(id[0])
		n.System = identifier(id[1:], subtype == lldp.ChassisIDSubtypeMACAddress, subtype == lldp.ChassisIDSubtypeNetworkAddress)
	}
	return n
}

// VLANs returns the ids that the neighbour names by the VLAN Name TLVs of IEEE 802.1Q, annex D.2.3, in their order and
// each once.
func (f Frame) VLANs() []int {
	var ids []int
	for _, t := range f.TLVs {
		// Organization 00-80-C2, subtype 3, and then the id.
		if t.Type != uint8(lldp.TLVTypeOrganizationSpecific) || len(t.Value) < 6 || string(t.Value[:4]) != "\x00\x80\xc2\x03" {
			continue
		}
		id := int(binary.BigEndian.Uint16(t.Value[4:]))
		if id >= 1 && id <= 4094 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// first returns the value of the first TLV of a type, nil when there is none.
func (f Frame) first(kind lldp.TLVType) []byte {
	for _, t := range f.TLVs {
		if t.Type == uint8(kind) {
			return t.Value
		}
	}
	return nil
}

// identifier writes a chassis or port id the way people know it.
func identifier(id []byte, isMAC, isAddress bool) string {
	switch {
	case isMAC && len(id) == 6:
		return net.HardwareAddr(id).String()
	case isAddress && len(id) > 0: // the first byte is the family, which the length tells as well
		if addr, ok := netip.AddrFromSlice(id[1:]); ok {
			return addr.String()
		}
	}
	return text(id)
}

// text makes foreign bytes fit for a console.
func text(value []byte) string {
	value = value[:min(len(value), maxText)]
	s := strings.ToValidUTF8(string(value), "")
	s = strings.TrimSpace(strings.TrimRight(s, "\x00"))
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
	if printable == "" && len(value) > 0 {
		return hex.EncodeToString(value)
	}
	return printable
}
