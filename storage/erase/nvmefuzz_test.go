package erase

import (
	"slices"
	"testing"
)

// scriptedNVMe answers each admin command with the next bytes of a script, and with zeros at its end.
type scriptedNVMe struct {
	adminDevice

	script   []byte
	commands int
}

func (s *scriptedNVMe) admin(_ *adminCommand, data []byte) error {
	s.commands++
	s.script = s.script[copy(data, s.script):]
	return nil
}

// Arbitrary data of a controller cause a bounded number of commands, repeat no namespace, and select no sanitize that
// erases other namespaces.
func FuzzNVMe(f *testing.F) {
	managed := make([]byte, 4096)
	managed[83], managed[82], managed[256] = 1, 2, 1<<3 // NVMe 1.2 with management of namespaces
	list := make([]byte, 2*4096)
	list[0], list[4], list[4096] = 1, 2, 3
	f.Add(managed, list, uint32(1))
	old := make([]byte, 4096)
	old[516] = 3
	f.Add(old, []byte{1}, uint32(2))
	f.Fuzz(func(t *testing.T, controller, script []byte, nsid uint32) {
		controller = append(controller, make([]byte, 4096)...)[:4096]
		d := &scriptedNVMe{script: script}
		scope, err := readScope(t.Context(), d, nsid, controller, sharedSubsystem(controller))
		if most := len(script)/4096 + 2 + maxSequential; d.commands > most {
			t.Errorf("got %d commands, want at most %d", d.commands, most)
		}
		if err == nil {
			if !slices.IsSorted(scope.others) || slices.Contains(scope.others, nsid) ||
				len(slices.Compact(slices.Clone(scope.others))) != len(scope.others) {
				t.Errorf("got the other namespaces %v besides %d", scope.others, nsid)
			}
			for _, id := range scope.unattached {
				if !slices.Contains(scope.others, id) {
					t.Errorf("namespace %d is not attached, but not one of %v", id, scope.others)
				}
			}
			if action, err := chooseSanitize(controller, scope); err == nil && (scope.shared || len(scope.others) > 0) {
				t.Errorf("got the action %+v, which erases other namespaces than %d: %+v", action, nsid, scope)
			}
		}
		if _, err := readSanitizeLog(t.Context(), d); err != nil {
			t.Error(err)
		}
	})
}
