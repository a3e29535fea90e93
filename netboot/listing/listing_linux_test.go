package listing

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	refused := errors.New("not permitted")
	for _, tt := range []struct {
		name        string
		interrupted int
		then        error
		calls       int
		want        error
	}{
		{"at once", 0, nil, 1, nil},
		{"interrupted twice", 2, nil, 3, nil},
		{"always interrupted", 100, nil, tries, netlink.ErrDumpInterrupted},
		{"refused", 0, refused, 1, refused},
		{"interrupted, then refused", 1, refused, 2, refused},
	} {
		calls := 0
		got, err := Whole(func() ([]string, error) {
			if calls++; calls <= tt.interrupted {
				return []string{"eth0"}, netlink.ErrDumpInterrupted
			}
			return []string{"eth0"}, tt.then
		})
		if !errors.Is(err, tt.want) || !slices.Equal(got, []string{"eth0"}) || calls != tt.calls {
			t.Errorf("%s: got %v and %v after %d calls, want the list and %v after %d",
				tt.name, got, err, calls, tt.want, tt.calls)
		}
	}
}
