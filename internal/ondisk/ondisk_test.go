package ondisk

import (
	"bytes"
	"encoding/binary"
	"testing"
)

type record struct {
	Kind uint8
	_    [2]byte
	Size uint32
}

func TestEncodeDecode(t *testing.T) {
	want := record{Kind: 1, Size: 0x02030405}
	for order, raw := range map[binary.ByteOrder][]byte{
		binary.LittleEndian: {1, 0, 0, 5, 4, 3, 2, 0xff},
		binary.BigEndian:    {1, 0, 0, 2, 3, 4, 5, 0xff},
	} {
		got := bytes.Repeat([]byte{0xff}, len(raw))
		Encode(got, order, want)
		if !bytes.Equal(got, raw) {
			t.Errorf("%v: encoded %x, want %x and the last byte as it was", order, got, raw)
		}
		appended := Append([]byte{0xfe}, order, want)
		if !bytes.Equal(appended, append([]byte{0xfe}, raw[:len(raw)-1]...)) {
			t.Errorf("%v: appended %x, want fe and %x", order, appended, raw[:len(raw)-1])
		}
		if got := Decode[record](raw, order); got != want {
			t.Errorf("%v: decoded %+v, want %+v", order, got, want)
		}
	}
}

// The structures have the sizes of the specification, so that their fields are at its offsets.
func TestMBR(t *testing.T) {
	if whole, entry := binary.Size(MBR{}), binary.Size(MBREntry{}); whole != 512 || entry != 16 {
		t.Errorf("got %d bytes, entries of %d, want 512 and 16", whole, entry)
	}
}

func TestMistakes(t *testing.T) {
	short := make([]byte, 6)
	for name, do := range map[string]func(){
		"encode to few bytes":   func() { Encode(short, binary.LittleEndian, record{Kind: 1}) },
		"decode few bytes":      func() { Decode[record](short, binary.LittleEndian) },
		"append without a size": func() { Append(nil, binary.LittleEndian, "text") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic", name)
				}
			}()
			do()
		}()
	}
}
