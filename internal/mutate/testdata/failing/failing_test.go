package failing

import "testing"

func TestOne(t *testing.T) {
	if got := one(); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
}
