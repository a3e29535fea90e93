package scsi

import (
	"encoding/binary"
	"fmt"
)

// Sense keys (SPC-5, table "Sense key descriptions").
const (
	KeyNoSense   = 0x0
	KeyRecovered = 0x1

	keyNotReady       = 0x2
	keyMediumError    = 0x3
	keyIllegalRequest = 0x5
	keyUnitAttention  = 0x6
)

// Response codes and descriptor types (SPC-5, tables "Response codes" and "DESCRIPTOR TYPE field").
const (
	senseFixed, senseFixedDeferred           = 0x70, 0x71
	senseDescriptor, senseDescriptorDeferred = 0x72, 0x73

	descriptorKeySpecific = 0x02
)

// Sense is decoded sense data.
type Sense struct {
	Key, ASC, ASCQ byte
	// Fixed is the data if they are in the fixed format and have at least 14 bytes, otherwise nil.
	Fixed       []byte
	descriptors []byte
}

// ParseSense decodes sense data in the fixed or the descriptor format (SPC-5, tables "Fixed format sense data" and
// "Descriptor format sense data").
func ParseSense(data []byte) (Sense, error) {
	if len(data) < 8 {
		return Sense{}, fmt.Errorf("got %d bytes of sense data, want at least 8", len(data))
	}
	end := min(len(data), 8+int(data[7]))
	switch code := data[0] & 0x7f; code {
	case senseFixed, senseFixedDeferred:
		s := Sense{Key: data[2] & 0x0f}
		if end > 13 {
			s.ASC, s.ASCQ, s.Fixed = data[12], data[13], data[:end]
		}
		return s, nil
	case senseDescriptor, senseDescriptorDeferred:
		return Sense{Key: data[1] & 0x0f, ASC: data[2], ASCQ: data[3], descriptors: data[8:end]}, nil
	default:
		return Sense{}, fmt.Errorf("unknown format 0x%02x of sense data", code)
	}
}

// Descriptor returns the first descriptor of a type, including its header, nil if there is none of that type and size
// in bytes.
func (s Sense) Descriptor(kind byte, size int) []byte {
	for rest := s.descriptors; len(rest) >= 2; {
		length := 2 + int(rest[1])
		if length > len(rest) {
			return nil
		}
		if rest[0] == kind && length == size {
			return rest[:length]
		}
		rest = rest[length:]
	}
	return nil
}

// progress returns the progress of an operation in 1/65536 (SPC-5, table "Progress indication sense key specific
// data"). ok is false if the data have none.
func (s Sense) progress() (value uint16, ok bool) {
	specific := s.Descriptor(descriptorKeySpecific, 8)
	switch {
	case len(s.Fixed) >= 18:
		specific = s.Fixed[15:18]
	case specific != nil:
		specific = specific[4:7]
	default:
		return 0, false
	}
	return binary.BigEndian.Uint16(specific[1:]), specific[0]&0x80 != 0 // SKSV
}

// is reports whether the data have a key and an additional sense code with qualifier.
func (s Sense) is(key, asc, ascq byte) bool { return s.Key == key && s.ASC == asc && s.ASCQ == ascq }
