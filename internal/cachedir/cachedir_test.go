//go:build unix

package cachedir

import (
	"errors"
	"os"
	"testing"
)

// Files that a failed build has left are not used, and do not disturb the next one. A result is built once for each
// recipe.
func TestGet(t *testing.T) {
	cache, broken, builds := t.TempDir(), errors.New("broken"), 0
	get := func(recipe string, fails error) (string, error) {
		return Get(cache, "name", recipe, func(path string) error {
			builds++
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			return fails
		})
	}
	if path, err := get("one", broken); !errors.Is(err, broken) {
		t.Errorf("failed build: got %q and %v, want %v", path, err, broken)
	}
	first, err := get("one", nil)
	if info, statErr := os.Stat(first); err != nil || statErr != nil || !info.IsDir() {
		t.Fatalf("got %v and %v, want a directory", err, statErr)
	}
	if again, err := get("one", broken); again != first || err != nil {
		t.Errorf("second call: got %q and %v, want %q", again, err, first)
	}
	if other, err := get("two", nil); other == first || err != nil {
		t.Errorf("other recipe: got %q and %v, want another path", other, err)
	}
	if builds != 3 {
		t.Errorf("got %d builds, want 3", builds)
	}
}
