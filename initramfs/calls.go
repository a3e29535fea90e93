package initramfs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"

	"ironroot/internal/confine"
)

// managerCallsFile is the file in which the agent finds further system calls that managers may make.
const managerCallsFile = "usr/lib/ironroot/manager-calls.json"

// managerCalls returns the file with the system calls of ManagerCalls. Each name must belong to one manager.
func (b *builder) managerCalls() ([]cpio.Record, error) {
	if len(b.ManagerCalls) == 0 {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(b.ManagerCalls)) {
		count := 0
		for _, manager := range b.managers {
			if manager == name {
				count++
			}
		}
		if count != 1 {
			return nil, fmt.Errorf(
				"system calls of manager %q: got %d managers of that name, want 1 of %q", name, count, b.managers)
		}
		for _, call := range b.ManagerCalls[name] {
			if err := confine.CheckAddedCall(call); err != nil {
				return nil, fmt.Errorf("system calls of manager %q: %w", name, err)
			}
		}
		b.say("manager %s may make the system calls %s, too", name, strings.Join(b.ManagerCalls[name], ", "))
	}
	text, err := json.Marshal(b.ManagerCalls)
	if err != nil {
		return nil, err
	}
	b.note(managerCallsFile, origin{own: true})
	return []cpio.Record{cpio.StaticFile(managerCallsFile, string(text), 0o644)}, nil
}
