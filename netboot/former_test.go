package netboot

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestOutlived(t *testing.T) {
	now := time.Now()
	prefix := netip.MustParsePrefix
	older := formerAddress{prefix("192.0.2.5/24"), now.Add(time.Minute)}
	ended := formerAddress{prefix("192.0.2.6/24"), now.Add(-time.Second)}
	config := func(former []formerAddress, addresses ...netip.Prefix) linkConfig {
		return linkConfig{addresses: addresses, former: former}
	}
	first, second := prefix("192.0.2.10/24"), prefix("192.0.2.11/24")
	for name, c := range map[string]struct {
		before   linkConfig
		duration time.Duration
		next     linkConfig
		revoked  []netip.Addr
		want     []formerAddress
	}{
		"the same address":       {before: config(nil, first), duration: time.Hour, next: config(nil, first)},
		"another one":            {before: config(nil, first), duration: time.Hour, next: config(nil, second), want: []formerAddress{{first, now.Add(time.Hour)}}},
		"another one, for ever":  {before: config(nil, first), duration: Forever, next: config(nil, second), want: []formerAddress{{prefix: first}}},
		"it is over":             {before: config(nil, first), duration: -time.Second, next: config(nil, second)},
		"it is taken back":       {before: config(nil, first), duration: time.Hour, next: config(nil, second), revoked: []netip.Addr{first.Addr()}},
		"one of two, and before": {before: config([]formerAddress{older, ended}, first, second), duration: time.Hour, next: config(nil, second), want: []formerAddress{older, {first, now.Add(time.Hour)}}},
		"a former one again":     {before: config([]formerAddress{older}, first), duration: time.Hour, next: config(nil, older.prefix), want: []formerAddress{{first, now.Add(time.Hour)}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.before.outlived(now, c.duration, c.next, c.revoked)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(formerAddress{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("former addresses (-want +got):\n%s", diff)
			}
		})
	}
}
