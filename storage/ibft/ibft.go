package ibft

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"

	"ironroot/storage/iscsi"
	"ironroot/storage/sysfs"
)

// Table is the content of the table.
type Table struct {
	NICs    []NIC
	Targets []iscsi.Target
	// Problems describe the parts that cannot be used.
	Problems []error
}

// NIC is a network card with the address that the firmware has used.
type NIC struct {
	Name    string // of its directory, "ethernet0"
	MAC     net.HardwareAddr
	Address netip.Prefix // with the length of the subnet's prefix; zero if there is none
	Gateway netip.Addr   // zero if there is none
	DNS     []netip.Addr
	VLAN    int // 0 for none
}

// flagValid is the bit of the field flags of each structure that the firmware uses.
const flagValid = 1

var (
	nicDir    = regexp.MustCompile(`^ethernet\d{1,3}$`)
	targetDir = regexp.MustCompile(`^target\d{1,3}$`)
)

// fields are the attributes of a structure by their names.
type fields map[string]string

// maxField limits an attribute, in bytes. It exceeds an iSCSI name.
const maxField = 1024

// Read reads the table. It returns nil if the firmware has none, or if the module iscsi_ibft is not loaded.
func Read(s sysfs.Root) (*Table, error) {
	entries, err := os.ReadDir(s.Sys("firmware/ibft"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("iBFT: %w", err)
	}
	table := &Table{}
	initiator, err := initiatorName(readFields(s, "initiator"))
	if err != nil {
		table.Problems = append(table.Problems, err)
	}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case nicDir.MatchString(name):
			table.note(table.addNIC(name, readFields(s, name)))
		case targetDir.MatchString(name) && err == nil:
			table.note(table.addTarget(name, initiator, readFields(s, name)))
		}
	}
	return table, nil
}

// readFields reads the attributes of a structure. Those that the kernel does not export have no value in the table.
func readFields(s sysfs.Root, dir string) fields {
	f := fields{}
	entries, err := os.ReadDir(s.Sys("firmware/ibft", dir))
	if err != nil {
		return f // it is reported as incomplete
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue // the link to the PCI device
		}
		data, err := s.Files.Read(s.Sys("firmware/ibft", dir, entry.Name()))
		if err == nil && len(data) <= maxField {
			f[entry.Name()] = strings.TrimRight(string(data), "\n\x00")
		}
	}
	return f
}

// note adds a problem, if there is one.
func (t *Table) note(err error) {
	if err != nil {
		t.Problems = append(t.Problems, err)
	}
}

func initiatorName(f fields) (string, error) {
	name := f["initiator-name"]
	if err := iscsi.CheckName(name); err != nil {
		return "", fmt.Errorf("iBFT: initiator: %w", err)
	}
	return name, nil
}

// addNIC adds a network card that the firmware has used.
func (t *Table) addNIC(name string, f fields) error {
	valid, err := f.valid()
	if err != nil || !valid {
		return wrap(name, err)
	}
	n := NIC{Name: name}
	if n.MAC, err = net.ParseMAC(f["mac"]); err != nil || len(n.MAC) != 6 {
		return wrap(name, fmt.Errorf("got MAC address %.40q", f["mac"]))
	}
	if n.VLAN, err = f.number("vlan", 0, 4094); err != nil {
		return wrap(name, err)
	}
	address, err := f.address("ip-addr")
	if err != nil {
		return wrap(name, err)
	}
	if address.IsValid() {
		bits, err := f.number("prefix-len", 1, address.BitLen())
		if err != nil {
			return wrap(name, err)
		}
		n.Address = netip.PrefixFrom(address, bits)
	}
	if n.Gateway, err = f.address("gateway"); err != nil {
		return wrap(name, err)
	}
	for _, key := range []string{"primary-dns", "secondary-dns"} {
		server, err := f.address(key)
		if err != nil {
			return wrap(name, err)
		}
		if server.IsValid() {
			n.DNS = append(n.DNS, server)
		}
	}
	t.NICs = append(t.NICs, n)
	return nil
}

// addTarget adds a target that the firmware has used.
func (t *Table) addTarget(name, initiator string, f fields) error {
	valid, err := f.valid()
	if err != nil || !valid {
		return wrap(name, err)
	}
	if err := iscsi.CheckName(f["target-name"]); err != nil {
		return wrap(name, err)
	}
	address, err := f.address("ip-addr")
	if err == nil && !address.IsValid() {
		err = errors.New("no address")
	}
	if err != nil {
		return wrap(name, err)
	}
	port, err := f.number("port", 1, 65535)
	if err != nil {
		return wrap(name, err)
	}
	target := iscsi.Target{
		Name: f["target-name"], Initiator: initiator, Address: netip.AddrPortFrom(address, uint16(port)),
		Session: uint16(len(t.Targets)),
	}
	kind, err := f.number("chap-type", 0, chapMutual)
	if err != nil {
		return wrap(name, err)
	}
	if kind >= chapOneWay {
		target.CHAP.Name, target.CHAP.Secret = f["chap-name"], f["chap-secret"]
		if target.CHAP.Name == "" || target.CHAP.Secret == "" {
			return wrap(name, errors.New("CHAP without name or secret"))
		}
	}
	if kind == chapMutual {
		target.CHAP.TargetName, target.CHAP.TargetSecret = f["rev-chap-name"], f["rev-chap-name-secret"]
		if target.CHAP.TargetSecret == "" {
			return wrap(name, errors.New("mutual CHAP without the target's secret"))
		}
	}
	t.Targets = append(t.Targets, target)
	return nil
}

// Values of chap-type.
const (
	chapOneWay = 1
	chapMutual = 2
)

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("iBFT: %s: %w", name, err)
}

// valid reports whether the firmware uses the structure.
func (f fields) valid() (bool, error) {
	n, err := f.number("flags", 0, 255)
	return n&flagValid != 0, err
}

// number parses a number. A missing one is 0, if that is allowed.
func (f fields) number(key string, least, most int) (int, error) {
	text, found := f[key]
	if !found {
		text = "0"
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("got %s %.40q, want %d to %d", key, text, least, most)
	}
	return n, nil
}

// address parses an address. A missing one and the unspecified one are zero.
func (f fields) address(key string) (netip.Addr, error) {
	text, found := f[key]
	if !found {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("got %s %.60q, want an address", key, text)
	}
	if a.IsUnspecified() {
		return netip.Addr{}, nil
	}
	return a.Unmap(), nil
}
