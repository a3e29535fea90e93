package pciids

import (
	"bytes"
	"strings"
	"testing"
)

// database is a part of pci.ids.
const database = `#
#	List of PCI ID's
#
8086  Intel Corporation
	10d3  82574L Gigabit Network Connection
		103c 3250  NC112T PCIe single port Gigabit Server Adapter
	1521  I350 Gigabit Network Connection
# a comment
	1572  Ethernet Controller X710 for 10GbE SFP+
8088  Beijing Wangxun Technology Co., Ltd.
	0103  WX1860AL2 Gigabit Ethernet Controller Virtual Function

C 02  Network controller
	00  Ethernet controller
`

func TestFind(t *testing.T) {
	for id, want := range map[ID]Names{
		{0x8086, 0x10d3}: {"Intel Corporation", "82574L Gigabit Network Connection"},
		{0x8086, 0x1572}: {"Intel Corporation", "Ethernet Controller X710 for 10GbE SFP+"},
		{0x8088, 0x0103}: {
			"Beijing Wangxun Technology Co., Ltd.", "WX1860AL2 Gigabit Ethernet Controller Virtual Function",
		},
		{0x8086, 0x0103}: {"Intel Corporation", ""},
		{0x8088, 0x0000}: {"Beijing Wangxun Technology Co., Ltd.", ""}, // the line of a class is no device
		{0x103c, 0x3250}: {},
	} {
		if got, err := Find(strings.NewReader(database), id); got != want || err != nil {
			t.Errorf("%04x: got %q, %v, want %q", id, got, err, want)
		}
	}
}

func TestWrite(t *testing.T) {
	names := map[ID]Names{
		{2, 1}: {"two", "a"}, {1, 0xff}: {"one", "b"}, {1, 2}: {"one", "c"},
	}
	var text bytes.Buffer
	if err := Write(&text, names); err != nil {
		t.Fatal(err)
	}
	if want := "0001  one\n\t0002  c\n\t00ff  b\n0002  two\n\t0001  a\n"; text.String() != want {
		t.Errorf("got %q, want %q", text.String(), want)
	}
	for id, want := range names {
		if got, err := Find(bytes.NewReader(text.Bytes()), id); got != want || err != nil {
			t.Errorf("%04x: got %q, %v, want %q", id, got, err, want)
		}
	}
}
