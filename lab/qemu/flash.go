package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
)

// Flash is the path of a file with OVMF's variables. The variables follow the headers of the firmware volume and of the
// variable store, aligned to four bytes, in the form of edk2's AUTHENTICATED_VARIABLE_HEADER, up to the first free
// byte. No machine may use the file while it is written.
type Flash string

const (
	flashStore   = 0x48            // offset of the variable store
	flashStart   = flashStore + 28 // offset of the first variable
	flashHeader  = 60              // bytes of a variable's header
	flashMagic   = 0x55aa
	flashAdded   = 0x3f // state of a valid variable; others were replaced or deleted
	flashDeleted = 0x3d // flash can clear bits only
)

// GlobalVariable is the GUID in binary form of the variables of the UEFI specification.
var GlobalVariable = []byte{
	0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c,
}

// FlashVariable is a valid variable of a Flash.
type FlashVariable struct {
	Name string
	GUID []byte
	Data []byte
	at   int // offset of its header
}

// NewFlash creates a file with the variables of the template for a firmware of amd64.
func NewFlash(file string, f Firmware) (Flash, error) {
	template, err := Variables(f)
	if err != nil {
		return "", err
	}
	return Flash(file), copyFile(template, file)
}

// Variables returns the valid variables.
func (f Flash) Variables() ([]FlashVariable, error) {
	raw, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	found, _, err := f.parse(raw)
	return found, err
}

// parse returns the valid variables and the offset of the free space.
func (f Flash) parse(raw []byte) (found []FlashVariable, free int, err error) {
	le := binary.LittleEndian
	at := flashStart
	for at+flashHeader <= len(raw) && le.Uint16(raw[at:]) == flashMagic {
		header := raw[at : at+flashHeader]
		name, size := int(le.Uint32(header[36:])), int(le.Uint32(header[40:]))
		end := at + flashHeader + name + size
		if name < 2 || size < 0 || end > len(raw) {
			return nil, 0, fmt.Errorf("%s: variable at %d has %d bytes of name and %d of data", f, at, name, size)
		}
		if header[2] == flashAdded {
			var units []uint16
			for i := 0; i+2 < name; i += 2 { // without the null at the end
				units = append(units, le.Uint16(raw[at+flashHeader+i:]))
			}
			found = append(found, FlashVariable{
				string(utf16.Decode(units)), header[44:60], raw[at+flashHeader+name : end], at,
			})
		}
		at = (end + 3) &^ 3
	}
	return found, at, nil
}

// Set sets a variable: non-volatile, for boot services, at run time.
func (f Flash) Set(guid []byte, name string, data []byte) error {
	raw, err := os.ReadFile(string(f))
	if err != nil {
		return err
	}
	found, free, err := f.parse(raw)
	if err != nil {
		return err
	}
	for _, v := range found {
		if v.Name == name && bytes.Equal(v.GUID, guid) {
			raw[v.at+2] = flashDeleted
		}
	}
	le := binary.LittleEndian
	units := WideText(name)
	header := make([]byte, flashHeader)
	le.PutUint16(header, flashMagic)
	header[2] = flashAdded
	header[4] = 7
	le.PutUint32(header[36:], uint32(len(units)))
	le.PutUint32(header[40:], uint32(len(data)))
	copy(header[44:], guid)
	variable := slices.Concat(header, units, data)
	if end := flashStore + int(le.Uint32(raw[flashStore+16:])); free+len(variable) > end {
		return fmt.Errorf("%s: variable %s: no space: it would end at %d, the store at %d", f, name,
			free+len(variable), end)
	}
	copy(raw[free:], variable)
	return os.WriteFile(string(f), raw, 0o600)
}

// BootEntry is a boot entry as efibootmgr -v prints it.
type BootEntry struct {
	Active bool
	Text   string // the label, a tab and the device path
}

var (
	entryLine = regexp.MustCompile(`(?m)^Boot([0-9A-F]{4})(\*?) (.*)$`)
	orderLine = regexp.MustCompile(`(?m)^BootOrder: (.*)$`)
)

// BootEntries returns the boot entries by number, such as "0001", and the boot order, as efibootmgr reads them.
func (f Flash) BootEntries(ctx context.Context) (entries map[string]BootEntry, order []string, err error) {
	variables, err := f.Variables()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "efivars")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	for _, v := range variables {
		if !bytes.Equal(v.GUID, GlobalVariable) {
			continue
		}
		name := filepath.Join(dir, v.Name+"-"+guidText(v.GUID))
		if err := os.WriteFile(name, append([]byte{7, 0, 0, 0}, v.Data...), 0o600); err != nil {
			return nil, nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "efibootmgr", "-v")
	cmd.Env = append(os.Environ(), "EFIVARFS_PATH="+dir+"/")
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("efibootmgr: %w", err)
	}
	entries = map[string]BootEntry{}
	for _, m := range entryLine.FindAllStringSubmatch(string(out), -1) {
		entries[m[1]] = BootEntry{m[2] == "*", strings.TrimSpace(m[3])}
	}
	if m := orderLine.FindStringSubmatch(string(out)); m != nil {
		order = strings.Split(m[1], ",")
	}
	return entries, order, nil
}

// guidText returns a GUID in binary form as efivarfs writes it in the names of variables.
func guidText(guid []byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", le.Uint32(guid), le.Uint16(guid[4:]), le.Uint16(guid[6:]), guid[8:10],
		guid[10:])
}

// WideText returns a text in UCS-2 with a null at its end.
func WideText(text string) []byte {
	var out []byte
	for _, unit := range append(utf16.Encode([]rune(text)), 0) {
		out = binary.LittleEndian.AppendUint16(out, unit)
	}
	return out
}

// PathNode returns a node of a device path (UEFI 2.10, 10.3).
func PathNode(kind, subkind byte, data []byte) []byte {
	return append(binary.LittleEndian.AppendUint16([]byte{kind, subkind}, uint16(4+len(data))), data...)
}

// BootOption returns the value of a boot variable (UEFI 2.10, 3.1.3).
func BootOption(label string, nodes ...[]byte) []byte {
	path := append(slices.Concat(nodes...), 0x7f, 0xff, 4, 0)
	option := binary.LittleEndian.AppendUint16([]byte{1, 0, 0, 0}, uint16(len(path)))
	return slices.Concat(option, WideText(label), path)
}

// httpBoot is the number of the boot option that Config.HTTPBoot sets.
const httpBoot = 0x7777

// bootByHTTP makes the firmware boot a URL once, as a BMC does: by a short-form device path, so that the firmware
// tries each network card.
func (f Flash) bootByHTTP(url string) error {
	option := BootOption("HTTP", PathNode(3, 24, []byte(url)))
	if err := f.Set(GlobalVariable, fmt.Sprintf("Boot%04X", httpBoot), option); err != nil {
		return err
	}
	return f.Set(GlobalVariable, "BootNext", binary.LittleEndian.AppendUint16(nil, httpBoot))
}
