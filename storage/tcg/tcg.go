package tcg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Values of Level 0 Discovery (TCG Storage Architecture Core Specification 2.01, section "Level 0 Discovery"; kernel:
// TCG_SECP_01 and OPAL_DISCOVERY_COMID in block/opal_proto.h).
const (
	protocol = 0x01   // security protocol of the TCG
	comID    = 0x0001 // reserved for Level 0 Discovery

	// replyBytes is the size of the buffer. Linux and sedutil request the same.
	replyBytes  = 2048
	headerBytes = 48
)

// Codes of features (TCG Storage Security Subsystem Class: Opal 2.01, table "Level 0 Discovery - Locking Feature
// Descriptor", and the tables of the other classes).
const featureLocking = 0x0002

// classes are the names of the Security Subsystem Classes, by the codes of their features.
var classes = map[uint16]string{
	0x0100: "Enterprise",
	0x0200: "Opal 1",
	0x0203: "Opal 2",
	0x0301: "Opalite",
	0x0302: "Pyrite 1",
	0x0303: "Pyrite 2",
	0x0304: "Ruby",
	0x0305: "Key Per I/O",
}

// Receive sends a security command that receives data, and returns the data. The length of the buffer is a multiple of
// 512.
type Receive func(protocol byte, specific uint16, buffer []byte) ([]byte, error)

// Locking is the Locking feature of a drive.
type Locking struct {
	Supported   bool
	Enabled     bool // the drive has an owner who can lock ranges of it
	Locked      bool // at least one range cannot be read or written
	Encryption  bool // the drive encrypts its media
	MBREnabled  bool // the drive can show a shadow MBR in place of its first blocks
	MBRDone     bool // it does not show the shadow MBR now
	NoShadowMBR bool // it has no shadow MBR
}

// Bits of byte 4 of the Locking feature descriptor (Opal 2.01, table "Level 0 Discovery - Locking Feature Descriptor").
const (
	bitSupported  = 1 << 0
	bitEnabled    = 1 << 1
	bitLocked     = 1 << 2
	bitEncryption = 1 << 3
	bitMBREnabled = 1 << 4
	bitMBRDone    = 1 << 5
	bitNoMBR      = 1 << 6
)

// Discovery is the reply to Level 0 Discovery.
type Discovery struct {
	Classes []string // names of the Security Subsystem Classes
	Locking *Locking // nil if the drive does not report the feature
}

// Discover sends Level 0 Discovery. With an error, the result contains what precedes it.
func Discover(receive Receive) (Discovery, error) {
	data, err := receive(protocol, comID, make([]byte, replyBytes))
	if err != nil {
		return Discovery{}, fmt.Errorf("TCG Level 0 Discovery: %w", err)
	}
	d, err := Parse(data)
	if err != nil {
		return d, fmt.Errorf("TCG Level 0 Discovery: %w", err)
	}
	return d, nil
}

// Parse decodes the reply to Level 0 Discovery: a header of 48 bytes whose first four are the number of bytes that
// follow them, and descriptors with a header of four bytes: the code of the feature, its version, and the number of
// bytes that follow (Core Specification 2.01, tables "Level 0 Discovery Header" and "Level 0 Discovery Feature
// Descriptor"). A drive without a TPer may return zeros, which are a Discovery without features. With an error, the
// result contains the features before it; of two different Locking features, it has what each of them locks.
func Parse(data []byte) (Discovery, error) {
	if len(data) < headerBytes {
		return Discovery{}, fmt.Errorf("got %d bytes, want at least %d", len(data), headerBytes)
	}
	length := int64(binary.BigEndian.Uint32(data)) + 4
	if length == 4 {
		return Discovery{}, nil
	}
	if length < headerBytes {
		return Discovery{}, fmt.Errorf("got a length of %d bytes, want at least %d", length, headerBytes)
	}
	rest := data[headerBytes:min(length, int64(len(data)))]
	var d Discovery
	for len(rest) > 0 {
		if len(rest) < 4 {
			return d, fmt.Errorf("got a feature descriptor of %d bytes, want at least 4", len(rest))
		}
		code, size := binary.BigEndian.Uint16(rest), 4+int(rest[3])
		if size > len(rest) {
			return d, fmt.Errorf("feature 0x%04x: got %d bytes, want %d", code, len(rest), size)
		}
		if err := d.add(code, rest[4:size]); err != nil {
			return d, err
		}
		rest = rest[size:]
	}
	if length > int64(len(data)) {
		return d, fmt.Errorf("got %d bytes, want %d", len(data), length)
	}
	return d, nil
}

// add adds a feature. Features without a meaning for an erase are ignored.
func (d *Discovery) add(code uint16, data []byte) error {
	if name := classes[code]; name != "" && !slices.Contains(d.Classes, name) {
		d.Classes = append(d.Classes, name)
	}
	if code != featureLocking {
		return nil
	}
	if len(data) == 0 {
		return errors.New("got an empty Locking feature descriptor, want at least 1 byte")
	}
	found := Locking{
		Supported: data[0]&bitSupported != 0, Enabled: data[0]&bitEnabled != 0, Locked: data[0]&bitLocked != 0,
		Encryption: data[0]&bitEncryption != 0, MBREnabled: data[0]&bitMBREnabled != 0,
		MBRDone: data[0]&bitMBRDone != 0, NoShadowMBR: data[0]&bitNoMBR != 0,
	}
	if l := d.Locking; l != nil && *l != found {
		l.Enabled, l.Locked = l.Enabled || found.Enabled, l.Locked || found.Locked
		l.MBREnabled, l.MBRDone = l.MBREnabled || found.MBREnabled, l.MBRDone && found.MBRDone
		l.NoShadowMBR = l.NoShadowMBR && found.NoShadowMBR
		return errors.New("got two different Locking feature descriptors, want one")
	}
	d.Locking = &found
	return nil
}

// ClassNames returns the names of the Security Subsystem Classes.
func (d Discovery) ClassNames() string {
	if len(d.Classes) == 0 {
		return "an unknown Security Subsystem Class"
	}
	return strings.Join(d.Classes, ", ")
}

// LockedReason returns why the content of the drive cannot be read or written as a whole, "" if it can.
func (d Discovery) LockedReason() string {
	l := d.Locking
	switch {
	case l == nil || !l.Enabled:
		return ""
	case l.Locked:
		return "at least one range of it is locked"
	case l.MBREnabled && !l.MBRDone && !l.NoShadowMBR:
		return "it shows its shadow MBR in place of its first blocks"
	}
	return ""
}

// String describes the state of the drive.
func (d Discovery) String() string {
	l := d.Locking
	if l == nil {
		return fmt.Sprintf("%s, no locking", d.ClassNames())
	}
	return fmt.Sprintf("%s, locking supported %t, enabled %t, locked %t, media encryption %t, "+
		"shadow MBR enabled %t, done %t", d.ClassNames(), l.Supported, l.Enabled, l.Locked, l.Encryption,
		l.MBREnabled, l.MBRDone)
}
