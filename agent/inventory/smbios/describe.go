package smbios

import (
	"fmt"
	"strconv"
	"strings"
)

// Field is a line of a description. A line with a list has no value.
type Field struct {
	Key   string
	Value string
	List  []string
}

const (
	unknown   = "Unknown"
	outOfSpec = "<OUT OF SPEC>"
)

// Describe returns the fields of a structure of type 0, 4, 16 or 17, with the names and values of dmidecode. Other
// types, and structures too short for their type, have no fields.
func (t *Table) Describe(s Structure) []Field {
	d := &description{Structure: s, version: uint16(t.Major)<<8 | uint16(t.Minor)}
	switch s.Type {
	case TypeBIOS:
		d.bios()
	case TypeProcessor:
		d.processor()
	case TypeMemoryArray:
		d.memoryArray()
	case TypeMemoryDevice:
		d.memoryDevice()
	}
	return d.fields
}

// Title returns dmidecode's line above the fields.
func Title(s Structure) string {
	return fmt.Sprintf("Handle 0x%04X, DMI type %d, %d bytes", s.Handle, s.Type, len(s.Data))
}

type description struct {
	Structure
	version uint16
	fields  []Field
}

func (d *description) add(key, format string, args ...any) {
	d.fields = append(d.fields, Field{Key: key, Value: fmt.Sprintf(format, args...)})
}

func (d *description) list(key string, items []string) {
	d.fields = append(d.fields, Field{Key: key, List: items})
}

// text adds the string that the byte at offset refers to.
func (d *description) text(key string, offset int) { d.add(key, "%s", d.words(offset)) }

func (d *description) words(offset int) string {
	n := int(d.u8(offset))
	switch {
	case n == 0:
		return "Not Specified"
	case n > len(d.Strings):
		return "<BAD INDEX>"
	}
	// As dmidecode prints it, not by Clean. Byte by byte: the specification allows only ASCII, and the encoding of
	// other bytes is unknown.
	text := []byte(d.Strings[n-1])
	for i, b := range text {
		if b < ' ' || b >= 0x7f {
			text[i] = '.'
		}
	}
	return string(text)
}

// orUnknown formats a number whose value 0 means unknown.
func orUnknown[T byte | uint16 | uint32](format string, n T) string {
	if n == 0 {
		return unknown
	}
	return fmt.Sprintf(format, n)
}

func named(names []string, n byte) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return outOfSpec
}

// bits returns the names of the set bits, the lowest first.
func bits(names []string, value uint64) []string {
	list := []string{}
	for i, name := range names {
		if name != "" && value>>i&1 != 0 {
			list = append(list, name)
		}
	}
	return list
}

// size formats an amount in its largest unit, or in the next smaller one if that is more precise; the remainder is
// truncated. Unit 0 is bytes, 1 is kB.
func size(n uint64, unit int) string {
	units := []string{"bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB"}
	group := 0 // groups of ten bits
	for n>>(10*group) >= 1024 {
		group++
	}
	if group > 0 && n>>(10*(group-1))%1024 != 0 {
		group--
	}
	return strconv.FormatUint(n>>(10*group), 10) + " " + units[unit+group]
}

func (d *description) bios() {
	if !d.has(0x12) {
		return
	}
	d.text("Vendor", 0x04)
	d.text("Version", 0x05)
	d.text("Release Date", 0x08)
	if segment := d.u16(0x06); segment != 0 {
		d.add("Address", "0x%04X0", segment)
		if runtime := (0x10000 - uint32(segment)) << 4; runtime&0x3ff != 0 {
			d.add("Runtime Size", "%d bytes", runtime)
		} else {
			d.add("Runtime Size", "%d kB", runtime>>10)
		}
	}
	d.add("ROM Size", "%s", d.romSize())
	d.list("Characteristics", d.biosCharacteristics())
	if !d.has(0x18) {
		return
	}
	for _, f := range []struct {
		key    string
		offset int
	}{{"BIOS Revision", 0x14}, {"Firmware Revision", 0x16}} {
		if major, minor := d.u8(f.offset), d.u8(f.offset+1); major != 0xff && minor != 0xff {
			d.add(f.key, "%d.%d", major, minor)
		}
	}
}

func (d *description) romSize() string {
	if small := d.u8(0x09); small != 0xff {
		return size((uint64(small)+1)<<6, 1)
	}
	extended := uint16(16) // MB: 256 units of 64 kB
	if d.has(0x1a) {
		extended = d.u16(0x18)
	}
	unit := []string{"MB", "GB", outOfSpec, outOfSpec}[extended>>14]
	return fmt.Sprintf("%d %s", extended&0x3fff, unit)
}

func (d *description) biosCharacteristics() []string {
	const notSupported = 1 << 3
	value := d.u64(0x0a)
	list := []string{"BIOS characteristics not supported"}
	if value&notSupported == 0 {
		list = bits(biosBits, value)
	}
	list = append(list, bits(biosBits1, uint64(d.u8(0x12)))...)
	return append(list, bits(biosBits2, uint64(d.u8(0x13)))...)
}

func (d *description) memoryArray() {
	if !d.has(0x0f) {
		return
	}
	location, ok := arrayLocations[d.u8(0x04)]
	if !ok {
		location = outOfSpec
	}
	d.add("Location", "%s", location)
	d.add("Use", "%s", named(arrayUses, d.u8(0x05)))
	d.add("Error Correction Type", "%s", named(corrections, d.u8(0x06)))
	switch capacity := d.u32(0x07); {
	case capacity != 0x80000000:
		d.add("Maximum Capacity", "%s", size(uint64(capacity), 1))
	case d.has(0x17):
		d.add("Maximum Capacity", "%s", size(d.u64(0x0f), 0))
	default:
		d.add("Maximum Capacity", unknown)
	}
	d.errorHandle(0x0b)
	d.add("Number Of Devices", "%d", d.u16(0x0d))
}

func (d *description) errorHandle(offset int) {
	text := fmt.Sprintf("0x%04X", d.u16(offset))
	switch d.u16(offset) {
	case 0xfffe:
		text = "Not Provided"
	case 0xffff:
		text = "No Error"
	}
	d.add("Error Information Handle", "%s", text)
}

func (d *description) memoryDevice() {
	if !d.has(0x15) {
		return
	}
	d.add("Array Handle", "0x%04X", d.u16(0x04))
	d.errorHandle(0x06)
	d.add("Total Width", "%s", width(d.u16(0x08)))
	d.add("Data Width", "%s", width(d.u16(0x0a)))
	d.add("Size", "%s", d.moduleSize())
	d.add("Form Factor", "%s", named(formFactors, d.u8(0x0e)))
	switch set := d.u8(0x0f); set {
	case 0:
		d.add("Set", "None")
	case 0xff:
		d.add("Set", unknown)
	default:
		d.add("Set", "%d", set)
	}
	d.text("Locator", 0x10)
	d.text("Bank Locator", 0x11)
	d.add("Type", "%s", named(memoryTypes, d.u8(0x12)))
	d.add("Type Detail", "%s", bitWords(memoryDetails, d.u16(0x13)))
	if !d.has(0x17) || d.u16(0x0c) == 0 { // an empty slot has no further fields
		return
	}
	d.module()
}

// module describes the module in a slot. Every edition of the specification extended the structure.
func (d *description) module() {
	d.add("Speed", "%s", d.speed(0x15, 0x54))
	for _, part := range []struct {
		length int
		add    func()
	}{
		{0x1b, func() {
			d.text("Manufacturer", 0x17)
			d.text("Serial Number", 0x18)
			d.text("Asset Tag", 0x19)
			d.text("Part Number", 0x1a)
		}},
		{0x1c, func() { d.add("Rank", "%s", orUnknown("%d", d.u8(0x1b)&0xf)) }},
		{0x22, func() { d.add("Configured Memory Speed", "%s", d.speed(0x20, 0x58)) }},
		{0x28, func() {
			d.add("Minimum Voltage", "%s", volts(d.u16(0x22)))
			d.add("Maximum Voltage", "%s", volts(d.u16(0x24)))
			d.add("Configured Voltage", "%s", volts(d.u16(0x26)))
		}},
		{0x34, func() {
			d.add("Memory Technology", "%s", named(technologies, d.u8(0x28)))
			d.add("Memory Operating Mode Capability", "%s", bitWords(operatingModes, d.u16(0x29)))
			d.text("Firmware Version", 0x2b)
			d.add("Module Manufacturer ID", "%s", manufacturer(d.u16(0x2c)))
			d.add("Module Product ID", "%s", orUnknown("0x%04X", d.u16(0x2e)))
			d.add("Memory Subsystem Controller Manufacturer ID", "%s", manufacturer(d.u16(0x30)))
			d.add("Memory Subsystem Controller Product ID", "%s", orUnknown("0x%04X", d.u16(0x32)))
		}},
		{0x3c, func() { d.add("Non-Volatile Size", "%s", portion(d.u64(0x34))) }},
		{0x44, func() { d.add("Volatile Size", "%s", portion(d.u64(0x3c))) }},
		{0x4c, func() { d.add("Cache Size", "%s", portion(d.u64(0x44))) }},
		{0x54, func() { d.add("Logical Size", "%s", portion(d.u64(0x4c))) }},
	} {
		if !d.has(part.length) {
			return
		}
		part.add()
	}
}

func (d *description) moduleSize() string {
	switch n := d.u16(0x0c); {
	case n == 0:
		return "No Module Installed"
	case n == 0xffff:
		return unknown
	case n == 0x7fff && d.has(0x20):
		switch mib := d.u32(0x1c) & 0x7fffffff; {
		case mib&0x3ff != 0:
			return fmt.Sprintf("%d MB", mib)
		case mib&0xffc00 != 0:
			return fmt.Sprintf("%d GB", mib>>10)
		default:
			return fmt.Sprintf("%d TB", mib>>20)
		}
	case n&0x8000 != 0:
		return size(uint64(n&0x7fff), 1)
	default:
		return size(uint64(n)<<10, 1)
	}
}

// speed returns a speed in MT/s. 0xffff refers to a wider field.
func (d *description) speed(offset, extended int) string {
	if n := d.u16(offset); n != 0xffff {
		return orUnknown("%d MT/s", n)
	}
	return orUnknown("%d MT/s", d.u32(extended))
}

func width(n uint16) string {
	if n == 0xffff {
		return unknown
	}
	return orUnknown("%d bits", n)
}

func volts(millivolts uint16) string {
	switch {
	case millivolts == 0:
		return unknown
	case millivolts%100 == 0:
		return fmt.Sprintf("%.1f V", float64(millivolts)/1000)
	default:
		return fmt.Sprintf("%g V", float64(millivolts)/1000)
	}
}

// bitWords returns the names of the set bits in one line. Bit 0 is reserved.
func bitWords(names []string, value uint16) string {
	if value&^1 == 0 {
		return "None"
	}
	return strings.Join(bits(names, uint64(value)), " ")
}

// manufacturer formats a JEDEC number (JEP106): the number of continuation codes, and the code.
func manufacturer(id uint16) string {
	if id == 0 {
		return unknown
	}
	return fmt.Sprintf("Bank %d, Hex 0x%02X", id&0x7f+1, id>>8)
}

func portion(bytes uint64) string {
	switch bytes {
	case 0:
		return "None"
	case 1<<64 - 1:
		return unknown
	}
	return size(bytes, 0)
}
