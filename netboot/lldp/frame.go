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

// Limits of what is stored of a link. The length field limits a TLV to 511 bytes.
const (
	maxFrame = 9216 // bytes; the largest jumbo frame that switches forward
	maxText  = 255  // bytes of a printable name, which is also the limit of IEEE 802.1AB
)

// TLV is an element of a frame: its type (0 to 127) and its value of at most 511 bytes.
type TLV struct {
	Type  uint8
	Value []byte
}

// Frame is the content of an LLDP frame.
type Frame struct {
	// TLVs are in the frame's order and include the End TLV; nil means that no frame was received.
	TLVs []TLV
	// Complete means that the frame has the elements that IEEE 802.1AB requires: chassis, port and time to live in
	// this order, and the end.
	Complete bool

	leaving bool // the neighbour announced its shutdown
}

// memory returns the number of bytes of memory of a frame, including the headers of its TLVs.
func (f Frame) memory() int {
	const header = 32 // bytes of a TLV without its value
	size := cap(f.TLVs) * header
	for _, t := range f.TLVs {
		size += cap(t.Value)
	}
	return size
}

// Neighbour is the sender of a frame in printable form: control characters are removed, and bytes that are not text
// are shown in hexadecimal. Fields that the frame does not contain are "".
type Neighbour struct {
	System          string // its name, otherwise its chassis id
	Port            string // its port id
	PortDescription string
}

var errNotLLDP = errors.New("not an LLDP frame")

// Parse parses an Ethernet frame with its header. If the frame violates IEEE 802.1AB, the error describes the
// violation, and the frame contains all TLVs before it. Padding after the End TLV is dropped.
func Parse(data []byte) (Frame, error) {
	var outer ethernet.Frame
	if err := outer.UnmarshalBinary(data[:min(len(data), maxFrame)]); err != nil {
		return Frame{}, fmt.Errorf("ethernet frame of %d bytes: %w", len(data), err)
	}
	if outer.EtherType != lldp.EtherType {
		return Frame{}, fmt.Errorf("%w: got ethertype %#04x, want %#04x",
			errNotLLDP, uint16(outer.EtherType), uint16(lldp.EtherType))
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

// walk splits a data unit into its TLVs up to the End TLV, and returns their length in bytes.
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
			return tlvs, length, fmt.Errorf("TLV of type %d at byte %d: got %d bytes, want %d",
				kind, length, len(rest), size)
		}
		tlvs = append(tlvs, TLV{kind, slices.Clone(rest[:size])})
		length += 2 + size
		if kind == uint8(lldp.TLVTypeEnd) {
			return tlvs, length, nil
		}
	}
}

// Neighbour returns the sender of the frame.
func (f Frame) Neighbour() Neighbour {
	n := Neighbour{
		System:          text(f.first(lldp.TLVTypeSystemName)),
		PortDescription: text(f.first(lldp.TLVTypePortDescription)),
	}
	if id := f.first(lldp.TLVTypePortID); len(id) > 0 {
		isMAC := lldp.PortIDSubtype(id[0]) == lldp.PortIDSubtypeMACAddress
		isAddress := lldp.PortIDSubtype(id[0]) == lldp.PortIDSubtypeNetworkAddress
		n.Port = identifier(id[1:], isMAC, isAddress)
	}
	if id := f.first(lldp.TLVTypeChassisID); n.System == "" && len(id) > 0 {
		isMAC := lldp.ChassisIDSubtype(id[0]) == lldp.ChassisIDSubtypeMACAddress
		isAddress := lldp.ChassisIDSubtype(id[0]) == lldp.ChassisIDSubtypeNetworkAddress
		n.System = identifier(id[1:], isMAC, isAddress)
	}
	return n
}

// VLANs returns the distinct ids in the neighbour's VLAN Name TLVs (IEEE 802.1Q, annex D.2.3) in their order.
func (f Frame) VLANs() []int {
	var ids []int
	for _, t := range f.TLVs {
		const prefix = "\x00\x80\xc2\x03" // organization 00-80-C2, subtype 3; the id follows
		if t.Type != uint8(lldp.TLVTypeOrganizationSpecific) || len(t.Value) < 6 || string(t.Value[:4]) != prefix {
			continue
		}
		id := int(binary.BigEndian.Uint16(t.Value[4:]))
		if id >= 1 && id <= 4094 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// first returns the value of the first TLV of a type, nil if there is none.
func (f Frame) first(kind lldp.TLVType) []byte {
	for _, t := range f.TLVs {
		if t.Type == uint8(kind) {
			return t.Value
		}
	}
	return nil
}

// identifier formats a chassis or port id.
func identifier(id []byte, isMAC, isAddress bool) string {
	switch {
	case isMAC && len(id) == 6:
		return net.HardwareAddr(id).String()
	case isAddress && len(id) > 0: // the first byte is the family, which also follows from the length
		if addr, ok := netip.AddrFromSlice(id[1:]); ok {
			return addr.String()
		}
	}
	return text(id)
}

// text returns received bytes as printable text.
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
