package watch

import (
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// The ramdisk contains none of the modules that only this package needs.
func TestNotInRamdisk(t *testing.T) {
	testenv.Programs(t, "go")
	for path := range strings.Lines(testenv.Run(t, "go", "list", "-deps", "../uinit")) {
		for _, module := range []string{"github.com/gophercloud/", "github.com/vbauerster/", "ironroot/watch"} {
			if strings.HasPrefix(path, module) {
				t.Errorf("the ramdisk contains %s", strings.TrimSpace(path))
			}
		}
	}
}
