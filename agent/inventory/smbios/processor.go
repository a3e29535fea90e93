package smbios

import (
	"fmt"
	"strings"
)

func (d *description) processor() {
	if !d.has(0x1a) {
		return
	}
	d.text("Socket Designation", 0x04)
	d.add("Type", "%s", named(processorTypes, d.u8(0x05)))
	d.add("Family", "%s", d.family())
	d.text("Manufacturer", 0x07)
	d.processorID()
	d.text("Version", 0x10)
	d.add("Voltage", "%s", processorVolts(d.u8(0x11)))
	d.add("External Clock", "%s", orUnknown("%d MHz", d.u16(0x12)))
	d.add("Max Speed", "%s", orUnknown("%d MHz", d.u16(0x14)))
	d.add("Current Speed", "%s", orUnknown("%d MHz", d.u16(0x16)))
	if status := d.u8(0x18); status&0x40 != 0 {
		d.add("Status", "Populated, %s", named(processorStates, status&7))
	} else {
		d.add("Status", "Unpopulated")
	}
	d.add("Upgrade", "%s", named(upgrades, d.u8(0x19)))
	if !d.has(0x20) {
		return
	}
	for level := range 3 {
		d.cache(level+1, d.u16(0x1a+2*level))
	}
	if !d.has(0x23) {
		return
	}
	d.text("Serial Number", 0x20)
	d.text("Asset Tag", 0x21)
	d.text("Part Number", 0x22)
	if d.has(0x28) {
		d.cores()
	}
}

func (d *description) cache(level int, handle uint16) {
	key := fmt.Sprintf("L%d Cache Handle", level)
	switch {
	case handle != 0xffff:
		d.add(key, "0x%04X", handle)
	case d.version >= 0x0203:
		d.add(key, "Not Provided")
	default:
		d.add(key, "No L%d Cache", level)
	}
}

// cores adds the numbers of cores and threads: bytes, or later words if the byte is 0xff.
func (d *description) cores() {
	for i, key := range []string{"Core Count", "Core Enabled", "Thread Count"} {
		n := uint16(d.u8(0x23 + i))
		if wide := 0x2a + 2*i; n == 0xff && d.has(wide+2) {
			n = d.u16(wide)
		}
		if d.u8(0x23+i) != 0 {
			d.add(key, "%d", n)
		}
	}
	const described = 0x00fc
	if value := d.u16(0x26); value&described == 0 {
		d.add("Characteristics", "None")
	} else {
		d.list("Characteristics", bits(processorBits, uint64(value)))
	}
}

func (d *description) familyNumber() uint16 {
	if n := uint16(d.u8(0x06)); n != 0xfe || !d.has(0x2a) {
		return n
	}
	return d.u16(0x28)
}

func (d *description) family() string {
	n := d.familyNumber()
	name, ok := families[n]
	if !ok {
		return outOfSpec
	}
	if n == 0xbe { // assigned twice
		switch maker := d.words(0x07); {
		case strings.Contains(maker, "Intel"), strings.HasPrefix(strings.ToLower(maker), "intel"):
			return "Core 2"
		case strings.Contains(maker, "AMD"), strings.HasPrefix(strings.ToLower(maker), "amd"):
			return "K7"
		}
	}
	return name
}

// The meaning of the eight bytes of a processor's ID depends on its family (7.5.3).
type idForm int

const (
	idOpaque idForm = iota // unknown
	id386                  // DX after reset
	id486                  // the same, of models without CPUID
	idARM                  // MIDR_EL1
	idSoC                  // JEP106 numbers of an ARM system on a chip
	idIntel                // EAX and EDX after CPUID 1, with Intel's signature
	idAMD                  // the same with AMD's
)

func (d *description) idForm() idForm {
	n := d.familyNumber()
	within := func(from, to uint16) bool { return n >= from && n <= to }
	switch {
	case n == 0x05:
		return id386
	case n == 0x06:
		// Only later models have CPUID; DX identifies the model.
		dx := d.u16(0x08)
		if dx&0x0f00 == 0x0400 && (dx&0x00f0 == 0x0040 || dx&0x00f0 >= 0x0070) && dx&0x000f >= 0x0003 {
			return idIntel
		}
		return id486
	case within(0x100, 0x101), within(0x118, 0x119):
		const socID = 1 << 9
		if d.has(0x28) && d.u16(0x26)&socID != 0 {
			return idSoC
		}
		return idARM
	case within(0x0b, 0x15), within(0x28, 0x2f), within(0xa1, 0xb3), n == 0xb5, within(0xb9, 0xc7), within(0xcd, 0xcf),
		within(0xd2, 0xdb), within(0xdd, 0xe0):
		return idIntel
	case within(0x18, 0x1d), n == 0x1f, within(0x38, 0x3f), within(0x46, 0x4f), within(0x66, 0x6b), within(0x83, 0x8f),
		within(0xb6, 0xb7), within(0xe4, 0xef):
		return idAMD
	case n == 0x01, n == 0x02:
		return idOfVersion(d.words(0x10))
	}
	return idOpaque
}

// idOfVersion determines the ID form of a processor of unknown family by its version.
func idOfVersion(version string) idForm {
	for _, known := range []struct {
		prefix string
		form   idForm
	}{
		{"Pentium III MMX", idIntel},
		{"Intel(R) Core(TM)2", idIntel},
		{"Intel(R) Pentium(R)", idIntel},
		{"Genuine Intel(R) CPU U1400", idIntel},
		{"AMD Athlon(TM)", idAMD},
		{"AMD Opteron(tm)", idAMD},
		{"Dual-Core AMD Opteron(tm)", idAMD},
	} {
		if strings.HasPrefix(version, known.prefix) {
			return known.form
		}
	}
	return idOpaque
}

func (d *description) processorID() {
	id := make([]string, 8)
	for i := range id {
		id[i] = fmt.Sprintf("%02X", d.u8(0x08+i))
	}
	d.add("ID", "%s", strings.Join(id, " "))
	eax := d.u32(0x08)
	switch d.idForm() {
	case id386:
		d.add("Signature", "Type %d, Family %d, Major Stepping %d, Minor Stepping %d",
			eax>>12&0xf, eax>>8&0xf, eax>>4&0xf, eax&0xf)
		return
	case id486:
		d.add("Signature", "Type %d, Family %d, Model %d, Stepping %d", eax>>12&3, eax>>8&0xf, eax>>4&0xf, eax&0xf)
		return
	case idSoC:
		d.add("Signature", "JEP-106 Bank 0x%02x Manufacturer 0x%02x, SoC ID 0x%04x, SoC Revision 0x%08x",
			eax>>24&0x7f, eax>>16&0x7f, eax&0xffff, d.u32(0x0c))
		return
	case idARM:
		if eax != 0 {
			d.add("Signature", "Implementor 0x%02x, Variant 0x%x, Architecture %d, Part 0x%03x, Revision %d",
				eax>>24, eax>>20&0xf, eax>>16&0xf, eax>>4&0xfff, eax&0xf)
		}
		return
	case idIntel:
		d.add("Signature", "Type %d, Family %d, Model %d, Stepping %d",
			eax>>12&3, eax>>20&0xff+eax>>8&0xf, eax>>12&0xf0+eax>>4&0xf, eax&0xf)
	case idAMD:
		family, model := eax>>8&0xf, eax>>4&0xf
		if family == 0xf {
			family, model = family+eax>>20&0xff, model|eax>>12&0xf0
		}
		d.add("Signature", "Family %d, Model %d, Stepping %d", family, model, eax&0xf)
	case idOpaque:
		return
	}
	const named = 0xbfeffbff
	if edx := d.u32(0x0c); edx&named == 0 {
		d.add("Flags", "None")
	} else {
		d.list("Flags", bits(cpuFlags, uint64(edx)))
	}
}

// processorVolts formats tenths of a volt, or the voltages that a socket supports (7.5.4).
func processorVolts(n byte) string {
	if n&0x80 != 0 {
		return fmt.Sprintf("%.1f V", float64(n&0x7f)/10)
	}
	if known := bits([]string{"5.0 V", "3.3 V", "2.9 V"}, uint64(n)); len(known) > 0 {
		return strings.Join(known, " ")
	}
	return unknown
}
