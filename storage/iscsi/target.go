package iscsi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
)

// DefaultPort is the TCP port of targets.
const DefaultPort = 3260

// Target is a target with what is needed to log in to it.
type Target struct {
	Name      string         // of the target: iqn, eui or naa
	Address   netip.AddrPort // of its portal
	Initiator string         // name of the initiator
	CHAP      CHAP
	// Session distinguishes several sessions of the initiator with a target: each has another number.
	Session uint16
}

// namePattern matches iSCSI names (RFC 3722, RFC 7143, 4.2.7): iqn, eui and naa.
var namePattern = regexp.MustCompile(`^(iqn\.\d{4}-\d{2}\.[^\s\x00-\x1f\x7f]+|eui\.[0-9A-Fa-f]{16}|` +
	`naa\.[0-9A-Fa-f]{16}([0-9A-Fa-f]{16})?)$`)

// maxName limits an iSCSI name, in bytes.
const maxName = 223

// CheckName returns an error unless a text is the name of a target or an initiator.
func CheckName(name string) error {
	if len(name) > maxName || !namePattern.MatchString(name) {
		return fmt.Errorf("got iSCSI name %.80q, want iqn, eui or naa with at most %d bytes", name, maxName)
	}
	return nil
}

// check returns an error if a login is not possible.
func (t Target) check() error {
	if err := errors.Join(CheckName(t.Name), CheckName(t.Initiator)); err != nil {
		return err
	}
	if !t.Address.IsValid() || t.Address.Addr().IsUnspecified() || t.Address.Port() == 0 {
		return fmt.Errorf("got address %s of target %s, want address and port", t.Address, t.Name)
	}
	return nil
}

// isid returns the initiator's part of the session's identifier (RFC 7143, 11.12.5), of type random. It is the same
// after a restart, so that the new session replaces one that the target still has.
func (t Target) isid() [6]byte {
	sum := sha256.Sum256([]byte(t.Initiator))
	return [6]byte{0x80, sum[0], sum[1], sum[2], byte(t.Session >> 8), byte(t.Session)}
}

// parseAddress parses the address to which a target redirects, with or without a port. Names are not resolved.
func parseAddress(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, strconv.Itoa(DefaultPort)
		if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
			host = host[1 : len(host)-1]
		}
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("target redirects to %.80q: want an IP address", text)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return netip.AddrPort{}, fmt.Errorf("target redirects to %.80q: want a port", text)
	}
	return netip.AddrPortFrom(address, uint16(number)), nil
}
