package uevent

import (
	"bytes"
	"strconv"
	"testing"
)

const (
	added = "add@/devices/pci0/virtio0\x00ACTION=add\x00DEVPATH=/devices/pci0/virtio0\x00SUBSYSTEM=virtio\x00" +
		"MODALIAS=virtio:d00000001v00001AF4\x00SEQNUM=912\x00"
	changed = "change@/devices/virtual/block/loop0\x00ACTION=change\x00DEVPATH=/devices/virtual/block/loop0\x00" +
		"SUBSYSTEM=block\x00MAJOR=7\x00MINOR=0\x00DEVNAME=loop0\x00SEQNUM=18446744073709551615\x00"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, message string
		want          Event
	}{
		{
			"added device", added,
			Event{Action: "add", Subsystem: "virtio", Path: "/devices/pci0/virtio0", Number: 912},
		},
		{
			"largest number", changed,
			Event{Action: "change", Subsystem: "block", Path: "/devices/virtual/block/loop0", Number: 1<<64 - 1},
		},
		{"value with equals sign", "DEVPATH=/devices/x=y\x00", Event{Path: "/devices/x=y"}},
		{"not terminated", "ACTION=add\x00SEQNUM=5", Event{Action: "add", Number: 5}},
		{"repeated key", "ACTION=add\x00ACTION=remove\x00", Event{Action: "remove"}},
		{"keys as prefix and suffix", "XACTION=add\x00ACTIONX=add\x00", Event{}},
		{"number too large", "SEQNUM=18446744073709551616\x00", Event{}},
		{"no number", "SEQNUM=-1\x00", Event{}},
		{"message of udev", "libudev\x00\xfe\xed\xca\xfe\x28\x00\x00\x00", Event{}},
		{"header only", "add@/devices/x\x00", Event{}},
		{"empty", "", Event{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Parse([]byte(tt.message)); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// Parsed values are parts of the message. A message that is built from them has the same values.
func FuzzParse(f *testing.F) {
	f.Add([]byte(added))
	f.Add([]byte(changed))
	f.Add([]byte("SEQNUM=x\x00\x00=\x00ACTION="))
	f.Fuzz(func(t *testing.T, message []byte) {
		e := Parse(message)
		for _, value := range []string{e.Action, e.Subsystem, e.Path} {
			if !bytes.Contains(message, []byte(value)) || bytes.ContainsRune([]byte(value), 0) {
				t.Errorf("got %q, want a field of the message", value)
			}
		}
		again := "ACTION=" + e.Action + "\x00SUBSYSTEM=" + e.Subsystem + "\x00DEVPATH=" + e.Path +
			"\x00SEQNUM=" + strconv.FormatUint(e.Number, 10) + "\x00"
		if got := Parse([]byte(again)); got != e {
			t.Errorf("got %+v, want %+v", got, e)
		}
	})
}
