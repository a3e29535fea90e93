//go:build linux

package ifconfig

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestReplaced(t *testing.T) {
	prefix := netip.MustParsePrefix
	later := time.Now().Add(time.Hour)
	older := Expiring{prefix("192.0.2.5/24"), time.Now().Add(time.Minute)}
	expired := Expiring{prefix("192.0.2.6/24"), time.Now().Add(-time.Second)}
	config := func(expiring []Expiring, addresses ...netip.Prefix) Config {
		return Config{Addresses: addresses, Expiring: expiring}
	}
	first, second := prefix("192.0.2.10/24"), prefix("192.0.2.11/24")
	for name, c := range map[string]struct {
		before  Config
		until   time.Time
		next    Config
		revoked []netip.Addr
		want    []Expiring
	}{
		"the same address": {before: config(nil, first), until: later, next: config(nil, first)},
		"another one": {
			before: config(nil, first), until: later, next: config(nil, second), want: []Expiring{{first, later}},
		},
		"another one, never expires": {
			before: config(nil, first), next: config(nil, second), want: []Expiring{{Prefix: first}},
		},
		"expired": {before: config(nil, first), until: time.Now().Add(-time.Second), next: config(nil, second)},
		"revoked": {
			before: config(nil, first), until: later, next: config(nil, second), revoked: []netip.Addr{first.Addr()},
		},
		"one of two, and older ones": {
			before: config([]Expiring{older, expired}, first, second), until: later, next: config(nil, second),
			want: []Expiring{older, {first, later}},
		},
		"an expiring one again": {
			before: config([]Expiring{older}, first), until: later, next: config(nil, older.Prefix),
			want: []Expiring{{first, later}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.before.Replaced(c.until, c.next, c.revoked)
			if diff := cmp.Diff(c.want, got, comparePrefixes, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("expiring addresses (-want +got):\n%s", diff)
			}
		})
	}
}
