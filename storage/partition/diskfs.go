package partition

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unicode/utf16"

	"github.com/diskfs/go-diskfs/backend"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/uuid"
)

// memory is the start of a disk in memory, from which go-diskfs reads a table or to which it writes one. Writes beyond
// its end are dropped.
type memory struct {
	backend.File // nil: all other methods fail
	data         []byte
}

func newMemory(data []byte) memory { return memory{(*os.File)(nil), data} }

func (m memory) ReadAt(p []byte, offset int64) (int, error) {
	return bytes.NewReader(m.data).ReadAt(p, offset)
}

func (m memory) WriteAt(p []byte, offset int64) (int, error) {
	if offset < int64(len(m.data)) {
		copy(m.data[offset:], p)
	}
	return len(p), nil
}

// medium is a disk to which go-diskfs writes a table. It stores the error, because go-diskfs returns only its text.
type medium struct {
	*os.File
	err error
}

func (m *medium) WriteAt(p []byte, offset int64) (n int, err error) {
	n, m.err = m.File.WriteAt(p, offset)
	return n, m.err
}

func (m *medium) Sync() error {
	m.err = m.File.Sync()
	return m.err
}

// gptPartition converts a partition in the sectors first to last for go-diskfs. It checks what go-diskfs does not
// check.
func gptPartition(p Partition, first, last int64) (*gpt.Partition, error) {
	if p.Type == "" {
		p.Type = TypeLinux
	}
	for _, text := range []string{p.Type, p.UUID} {
		if _, err := uuid.Parse(text); text != "" && (err != nil || len(text) != len(TypeLinux)) {
			return nil, fmt.Errorf("%q is no GUID", text)
		}
	}
	if p.Type == string(gpt.Unused) {
		return nil, fmt.Errorf("type %s means an unused entry", p.Type)
	}
	if units := utf16.Encode([]rune(p.Name)); len(units) > 36 {
		return nil, fmt.Errorf("name %q has %d UTF-16 units, 36 fit", p.Name, len(units))
	}
	if p.Boot {
		p.Attributes |= legacyBootable
	}
	return &gpt.Partition{
		Index: p.Number, Type: gpt.Type(p.Type), GUID: p.UUID, Name: p.Name, Attributes: p.Attributes,
		Start: uint64(first), End: uint64(last),
	}, nil
}

// fromGPT converts a partition that go-diskfs decoded or encoded.
func fromGPT(p *gpt.Partition, sector int64) Partition {
	first, last := int64(p.Start), int64(p.End)
	return Partition{
		Number: p.Index, Type: strings.ToUpper(string(p.Type)), UUID: strings.ToLower(p.GUID), Name: p.Name,
		Attributes: p.Attributes, Boot: p.Attributes&legacyBootable != 0,
		Start: first * sector, Size: (last - first + 1) * sector,
	}
}

// encodeEntry replaces a GPT's entry by the encoding of a partition and returns the partition.
func encodeEntry(e []byte, p Partition, first, last int64) (*gpt.Partition, error) {
	number := p.Number
	p.Number = 1
	entry, err := gptPartition(p, first, last)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 2*minSector+gpt.PartitionEntrySize) // MBR, header, and the first entry
	table := gpt.Table{Partitions: []*gpt.Partition{entry}}
	if err := table.Write(newMemory(head), alignment); err != nil {
		return nil, err
	}
	clear(e)
	copy(e, head[2*minSector:])
	entry.Index = number
	return entry, nil
}
