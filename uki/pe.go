package uki

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Offsets of fields and sizes of structures (Microsoft PE Format, "COFF File Header", "Optional Header", "Section
// Table"), from the start of the structure.
const (
	peOffset       = 0x3c // in the MS-DOS header: offset of the signature
	signatureSize  = 4
	fileHeaderSize = 20
	sectionSize    = 40

	sectionCount = 2 // in the file header

	initializedData    = 8 // in the optional header
	imageSize          = 56
	headersSize        = 60
	checksum           = 64
	dllCharacteristics = 70

	virtualSize = 8 // in a section header
)

const (
	nxCompat  = pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT
	readable  = pe.IMAGE_SCN_MEM_READ
	plainData = pe.IMAGE_SCN_CNT_INITIALIZED_DATA
	code      = pe.IMAGE_SCN_CNT_CODE
)

// maxImage limits the size of an image in bytes. Its addresses have 32 bits, and a load address is added to them.
const maxImage = 1 << 31

// section is a section of a unified kernel image.
type section struct {
	name    string
	content []byte
}

// image is a PE32+ program that sections are added to.
type image struct {
	data     []byte
	optional int // offset of the optional header
	sections int // offset of the section table
	headers  []pe.SectionHeader
	header   pe.OptionalHeader64
}

// parseImage parses a program without a signature.
func parseImage(data []byte) (*image, error) {
	if len(data) > maxImage {
		return nil, fmt.Errorf("has %d bytes, want at most %d", len(data), maxImage)
	}
	f, err := pe.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("is not a PE file: %w", err)
	}
	header, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return nil, errors.New("is not a PE32+ file")
	}
	start := int(binary.LittleEndian.Uint32(data[peOffset:])) + signatureSize
	i := &image{data: data, optional: start + fileHeaderSize, header: *header}
	i.sections = i.optional + int(f.SizeOfOptionalHeader)
	for _, s := range f.Sections {
		i.headers = append(i.headers, s.SectionHeader)
	}
	return i, i.check()
}

// check checks that sections can be added behind the existing ones.
func (i *image) check() error {
	h := i.header
	if !isAlignment(h.FileAlignment) || !isAlignment(h.SectionAlignment) || h.SectionAlignment < h.FileAlignment {
		return fmt.Errorf("has sections aligned to %d in the file and %d in memory, want powers of two",
			h.FileAlignment, h.SectionAlignment)
	}
	if h.NumberOfRvaAndSizes > pe.IMAGE_DIRECTORY_ENTRY_SECURITY &&
		h.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY] != (pe.DataDirectory{}) {
		return errors.New("is signed, want a file without a signature")
	}
	if len(i.headers) == 0 {
		return errors.New("has no sections")
	}
	if int64(h.SizeOfHeaders) > int64(len(i.data)) || i.sections+len(i.headers)*sectionSize > int(h.SizeOfHeaders) {
		return fmt.Errorf("has headers of %d bytes, which do not fit into the file", h.SizeOfHeaders)
	}
	next, address := int64(h.SizeOfHeaders), int64(h.SizeOfHeaders)
	for _, s := range i.headers {
		if s.Offset%h.FileAlignment != 0 || s.Size%h.FileAlignment != 0 || s.VirtualAddress%h.SectionAlignment != 0 {
			return fmt.Errorf("section %s is not aligned", s.Name)
		}
		if int64(s.Offset) < next || int64(s.VirtualAddress) < address {
			return fmt.Errorf("section %s overlaps another one or is out of order", s.Name)
		}
		next = int64(s.Offset) + int64(s.Size)
		address = int64(s.VirtualAddress) + int64(s.VirtualSize)
	}
	if next > int64(len(i.data)) || address > maxImage {
		return fmt.Errorf("sections end at byte %d of %d, and at address %d", next, len(i.data), address)
	}
	return nil
}

func isAlignment(n uint32) bool { return n >= 512 && n <= 1<<20 && n&(n-1) == 0 }

// content returns the bytes of a section, nil if there is none.
func (i *image) content(name string) []byte {
	at := i.find(name)
	if at < 0 {
		return nil
	}
	s := i.headers[at]
	return i.data[s.Offset : s.Offset+min(s.Size, s.VirtualSize)]
}

func (i *image) find(name string) int {
	return slices.IndexFunc(i.headers, func(s pe.SectionHeader) bool { return s.Name == name })
}

// isNXCompatible reports whether the program works if the firmware makes data not executable.
func (i *image) isNXCompatible() bool { return i.header.DllCharacteristics&nxCompat != 0 }

// withSections returns the program with more sections at its end. A section that exists already gets the new content,
// if it has the space for it. If nx is false, the result is not marked as compatible with memory that is not
// executable.
func (i *image) withSections(added []section, nx bool) ([]byte, error) {
	out := slices.Clone(i.data)
	headers := slices.Clone(i.headers)
	initialized := i.header.SizeOfInitializedData
	for _, s := range added {
		if at := i.find(s.name); at >= 0 {
			if err := i.replace(out, headers, at, s.content); err != nil {
				return nil, err
			}
			continue
		}
		h, err := i.newHeader(headers[len(headers)-1], s, int64(len(out)))
		if err != nil {
			return nil, err
		}
		place := i.sections + len(headers)*sectionSize
		if place+sectionSize > int(i.header.SizeOfHeaders) {
			return nil, fmt.Errorf("has no space in its headers for section %s", s.name)
		}
		if slices.ContainsFunc(out[place:place+sectionSize], func(b byte) bool { return b != 0 }) {
			return nil, fmt.Errorf("has other data in its headers at byte %d, where section %s belongs", place, s.name)
		}
		copy(out[place:], encodeHeader(h))
		headers = append(headers, h)
		initialized += h.VirtualSize
		out = append(out, make([]byte, int(h.Offset)-len(out))...)
		out = append(out, s.content...)
		out = append(out, make([]byte, int(h.Size)-len(s.content))...)
	}
	last := headers[len(headers)-1]
	le := binary.LittleEndian
	optional := out[i.optional:]
	le.PutUint16(out[i.optional-fileHeaderSize+sectionCount:], uint16(len(headers)))
	le.PutUint32(optional[initializedData:], initialized)
	le.PutUint32(optional[imageSize:], roundUp(last.VirtualAddress+last.VirtualSize, i.header.SectionAlignment))
	le.PutUint32(optional[checksum:], 0)
	if !nx {
		le.PutUint16(optional[dllCharacteristics:], i.header.DllCharacteristics&^nxCompat)
	}
	return out, nil
}

// replace replaces the content of a section of the program in out.
func (i *image) replace(out []byte, headers []pe.SectionHeader, at int, content []byte) error {
	h := &headers[at]
	space := int64(h.Size)
	if at+1 < len(headers) {
		space = min(space, int64(headers[at+1].VirtualAddress-h.VirtualAddress))
	}
	if int64(len(content)) > space {
		return fmt.Errorf("section %s has space for %d bytes, want %d", h.Name, space, len(content))
	}
	raw := out[h.Offset : h.Offset+h.Size]
	clear(raw[copy(raw, content):])
	h.VirtualSize = uint32(len(content))
	binary.LittleEndian.PutUint32(out[i.sections+at*sectionSize+virtualSize:], h.VirtualSize)
	return nil
}

// newHeader returns the header of a section that follows the section last, in a program of size bytes.
func (i *image) newHeader(last pe.SectionHeader, s section, size int64) (pe.SectionHeader, error) {
	file, memory := i.header.FileAlignment, i.header.SectionAlignment
	address := int64(last.VirtualAddress) + int64(last.VirtualSize)
	length := int64(len(s.content))
	if max(address, size)+length+int64(memory)+int64(file) > maxImage {
		return pe.SectionHeader{}, fmt.Errorf("section %s of %d bytes makes the image larger than %d bytes",
			s.name, length, int64(maxImage))
	}
	kind := uint32(plainData)
	if s.name == linuxSection {
		kind = code // old kernels are executed in place
	}
	return pe.SectionHeader{
		Name: s.name, VirtualSize: uint32(length), VirtualAddress: roundUp(uint32(address), memory),
		Size: roundUp(uint32(length), file), Offset: roundUp(uint32(size), file), Characteristics: kind | readable,
	}, nil
}

// encodeHeader returns the bytes of a section header.
func encodeHeader(h pe.SectionHeader) []byte {
	raw := pe.SectionHeader32{
		VirtualSize: h.VirtualSize, VirtualAddress: h.VirtualAddress, SizeOfRawData: h.Size, PointerToRawData: h.Offset,
		Characteristics: h.Characteristics,
	}
	copy(raw.Name[:], h.Name)
	out, err := binary.Append(make([]byte, 0, sectionSize), binary.LittleEndian, raw)
	if err != nil {
		panic(err) // the size of the structure is fixed
	}
	return out
}

// roundUp rounds n, which is at most maxImage, up to a multiple of a power of two.
func roundUp(n, alignment uint32) uint32 {
	if n > math.MaxUint32-alignment {
		panic(fmt.Sprintf("round up %d to %d", n, alignment))
	}
	return (n + alignment - 1) &^ (alignment - 1)
}
