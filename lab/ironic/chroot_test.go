//go:build linux

package ironic

import (
	"testing"
	"time"
)

// The recipe of the newest Ironic changes every month, the recipe of the others does not.
func TestRecipe(t *testing.T) {
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	end, next := begin.AddDate(0, 1, 0).Add(-time.Second), begin.AddDate(0, 1, 0)
	for _, suite := range []string{Bookworm, Trixie, Sid} {
		if recipe(suite, begin) != recipe(suite, end) {
			t.Errorf("%s: the recipe changes within a month", suite)
		}
		if changes := recipe(suite, begin) != recipe(suite, next); changes != (suite == Sid) {
			t.Errorf("%s: the recipe changes with the month: got %t", suite, changes)
		}
	}
	if recipe(Bookworm, begin) == recipe(Trixie, begin) {
		t.Error("two releases have the same recipe")
	}
}
