package netboot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// message6 is a DHCPv6 message between client and server (RFC 8415, section 8). The library's package for it knows all
// options there are, which costs the ramdisk three times the space of this file and all that uses it.
type message6 struct {
	kind        kind6
	transaction [3]byte
	options     []option6
}

// kind6 is a message type (RFC 8415, section 7.3).
type kind6 byte

const (
	solicit            kind6 = 1
	advertise6         kind6 = 2
	request6           kind6 = 3
	confirm            kind6 = 4
	renew              kind6 = 5
	rebind             kind6 = 6
	reply              kind6 = 7
	decline            kind6 = 9
	informationRequest kind6 = 11
)

// option6 is one option (RFC 8415, section 21.1).
type option6 struct {
	code  uint16
	value []byte
}

const (
	optClientID    = 1
	optServerID    = 2
	optIANA        = 3
	optIAAddress   = 5
	optRequested   = 6
	optElapsed     = 8 // in hundredths of a second
	optStatus      = 13
	optRapidCommit = 14
	optDNS         = 23 // RFC 3646
	optSearch      = 24
	optSNTP        = 31 // RFC 4075
	optRefresh     = 32
	optNTP         = 56 // RFC 5908
)

const (
	maxOptions    = 64 // of one level of one message
	port6Client   = 546
	port6Server   = 547
	allServers6   = "ff02::1:2" // all servers and relays on the link
	maxDUID       = 130         // bytes, with its type (RFC 8415, section 11.1)
	ntpServerAddr = 1           // sub-option of optNTP
)

var errShort6 = errors.New("DHCPv6 message ends within an option")

func parseMessage6(raw []byte) (*message6, error) {
	if len(raw) < 4 {
		return nil, errShort6
	}
	options, err := parseOptions6(raw[4:])
	if err != nil {
		return nil, err
	}
	return &message6{kind: kind6(raw[0]), transaction: [3]byte(raw[1:4]), options: options}, nil
}

func parseOptions6(raw []byte) ([]option6, error) {
	var options []option6
	for len(raw) > 0 {
		if len(options) == maxOptions {
			return nil, fmt.Errorf("DHCPv6 message with more than %d options", maxOptions)
		}
		if len(raw) < 4 {
			return nil, errShort6
		}
		size := int(binary.BigEndian.Uint16(raw[2:]))
		if size > len(raw)-4 {
			return nil, errShort6
		}
		options = append(options, option6{code: binary.BigEndian.Uint16(raw), value: raw[4 : 4+size]})
		raw = raw[4+size:]
	}
	return options, nil
}

// option returns the value of the first option with that code, nil when there is none.
func option(options []option6, code uint16) []byte {
	for _, o := range options {
		if o.code == code {
			return o.value
		}
	}
	return nil
}

func has6(options []option6, code uint16) bool {
	for _, o := range options {
		if o.code == code {
			return true
		}
	}
	return false
}

func (m *message6) bytes() []byte {
	return appendOptions6(append([]byte{byte(m.kind)}, m.transaction[:]...), m.options)
}

func appendOptions6(raw []byte, options []option6) []byte {
	for _, o := range options {
		raw = binary.BigEndian.AppendUint16(raw, o.code)
		raw = binary.BigEndian.AppendUint16(raw, uint16(len(o.value)))
		raw = append(raw, o.value...)
	}
	return raw
}

// statusError6 is the status code option as an error, nil where it is missing or tells of success.
func statusError6(options []option6) error {
	value := option(options, optStatus)
	if len(value) < 2 {
		return nil
	}
	code := binary.BigEndian.Uint16(value)
	if code == 0 {
		return nil
	}
	return &refusal6{code: code, message: string(value[2:min(len(value), 202)])}
}

// addresses6 reads a list of addresses.
func addresses6(value []byte) []netip.Addr {
	var list []netip.Addr
	for ; len(value) >= 16 && len(list) < maxServers; value = value[16:] {
		list = append(list, netip.AddrFrom16([16]byte(value)))
	}
	return list
}

// duration6 reads a time in seconds.
func duration6(value []byte) time.Duration { return seconds6(binary.BigEndian.Uint32(value)) }
