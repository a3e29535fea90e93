//go:build linux

package ironic

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const text = "4711 (a) 1 (b) S 42 4711 4711 0 -1 4194560 1 2 3 4 150 25 6 7 20 0 1 0 100 1000 10"
	id, parent, used, err := parseStat(text)
	if id != 4711 || parent != 42 || used != 1750*time.Millisecond || err != nil {
		t.Errorf("got process %d of %d, %v, %v, want 4711 of 42 and 1.75 s", id, parent, used, err)
	}
	for _, text := range []string{"", "1 (a) S 1", "1 (a) S x 1 1 0 -1 0 1 2 3 4 150 25 6"} {
		if _, _, _, err := parseStat(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}
