package erase

import (
	"slices"
	"testing"

	"ironroot/storage/nvme"
)

// scriptedNVMe answers each admin command with the next bytes of a script, and with zeros at its end.
type scriptedNVMe struct {
	adminDevice

	script []byte
	nsid   uint32
}

func (s *scriptedNVMe) namespace() (uint32, error) { return s.nsid, nil }

func (s *scriptedNVMe) Send(c nvme.Command) error {
	s.script = s.script[copy(c.Data, s.script):]
	return nil
}

// Arbitrary data of a controller repeat no namespace, and select no sanitize that erases other namespaces.
func FuzzNVMe(f *testing.F) {
	managed := make([]byte, 4*4096) // controller, namespace and lists
	managed[82], managed[81], managed[256] = 1, 2, 1<<3
	managed[2*4096], managed[2*4096+4], managed[3*4096] = 1, 2, 3
	f.Add(managed, uint32(1))
	old := make([]byte, 2*4096+1)
	old[516], old[2*4096] = 3, 1
	f.Add(old, uint32(2))
	f.Fuzz(func(t *testing.T, script []byte, nsid uint32) {
		controller, _, scope := identifyAll(t.Context(), &scriptedNVMe{script: script, nsid: nsid})
		if scope.unknown != nil {
			return
		}
		if !slices.IsSorted(scope.others) || slices.Contains(scope.others, nsid) ||
			len(slices.Compact(slices.Clone(scope.others))) != len(scope.others) {
			t.Errorf("got the other namespaces %v besides %d", scope.others, nsid)
		}
		for _, id := range scope.unattached {
			if !slices.Contains(scope.others, id) {
				t.Errorf("namespace %d is not attached, but not one of %v", id, scope.others)
			}
		}
		if action, err := chooseSanitize(*controller, scope); err == nil && (scope.shared || len(scope.others) > 0) {
			t.Errorf("got the action %+v, which erases other namespaces than %d: %+v", action, nsid, scope)
		}
	})
}
