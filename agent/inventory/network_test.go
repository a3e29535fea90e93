package inventory

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestDump(t *testing.T) {
	for _, tt := range []struct {
		name        string
		interrupted int
		calls       int
	}{{"at once", 0, 1}, {"interrupted twice", 2, 3}, {"always interrupted", 100, dumpTries}} {
		calls := 0
		got, err := dump(func() ([]string, error) {
			if calls++; calls <= tt.interrupted {
				return []string{"eth0"}, netlink.ErrDumpInterrupted
			}
			return []string{"eth0"}, nil
		})
		if err != nil || !slices.Equal(got, []string{"eth0"}) || calls != tt.calls {
			t.Errorf("%s: got %v and %v after %d calls, want the list after %d", tt.name, got, err, calls, tt.calls)
		}
	}
	refused := errors.New("not permitted")
	if _, err := dump(func() ([]string, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Errorf("got %v, want %v", err, refused)
	}
}
