package attack

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// minTried is the minimum number of attacks in a report. A lower number shows that the process ended early.
const minTried = 100

// Report is the result of Run.
type Report struct {
	Tried   int               // number of attacks
	Reached map[string]string // what each successful attack reached, by the name of the attack
}

// Check returns an error unless exactly the permitted attacks succeeded. permitted has the reason for each.
func (r Report) Check(permitted map[string]string) error {
	var problems []error
	if r.Tried < minTried {
		problems = append(problems, fmt.Errorf("got %d attacks, want at least %d", r.Tried, minTried))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Reached)) {
		if permitted[name] == "" {
			problems = append(problems, fmt.Errorf("attack %q reached %q, want it refused", name, r.Reached[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(permitted)) {
		if r.Reached[name] == "" {
			problems = append(problems, fmt.Errorf("attack %q was refused, but is permitted", name))
		}
	}
	return errors.Join(problems...)
}

// The attack by a socket for uevents, and why it may succeed.
const (
	uevents         = "netlink: uevents"
	ueventsHarmless = "libusb and libudev listen for them; forged ones change nothing, because sysfs is read"
)

// PermittedOutsideContainers returns the attacks that succeed as a hardware manager and as GRUB, with the reason for
// each.
func PermittedOutsideContainers() map[string]string {
	return map[string]string{uevents: ueventsHarmless}
}

// PermittedInContainer returns the attacks that succeed in a container, with the reason for each.
func PermittedInContainer(privileged bool) map[string]string {
	permitted := map[string]string{
		"memory of process 1": "it can only report an exit status, and has no capability that the program lacks",
	}
	if !privileged {
		permitted[uevents] = ueventsHarmless
	} else {
		for _, name := range []string{"open_tree", "move_mount", "pivot_root"} {
			permitted[name] = "bootc mounts in its own namespaces, and no call leads to others"
		}
	}
	return permitted
}
