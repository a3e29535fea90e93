package pxe

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMachines(t *testing.T) {
	got, err := ParseMachines(strings.NewReader(
		"# a comment\n\n52:54:00:00:00:0A  ipa-agent-token=SECRET x=\"1 2\" \n52-54-00-00-00-0b\n"))
	want := []Machine{
		{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 10}, Parameters: `ipa-agent-token=SECRET x="1 2"`},
		{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 11}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("got error %v, (-want +got):\n%s", err, diff)
	}
	_, err = ParseMachines(strings.NewReader("52:54:00:00:00:0a ok\nipa-agent-token=SECRET 52:54:00:00:00:0b\n"))
	if err == nil || err.Error() != "line 2 does not begin with a MAC address" {
		t.Errorf("got error %v, want one of line 2", err)
	}
}
