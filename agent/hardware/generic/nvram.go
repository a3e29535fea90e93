package generic

import (
	"context"
	"encoding/json"
	"regexp"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/storage/bootloader"
)

// matchPatterns is the argument of clean_uefi_nvram.
const matchPatterns = "match_patterns"

// nvramArguments are the arguments of clean_uefi_nvram.
func nvramArguments() map[string]hardware.ArgInfo {
	return map[string]hardware.ArgInfo{matchPatterns: {Description: "" +
		"List of regular expressions in RE2 syntax. Boot entries of the UEFI firmware whose device path matches any " +
		"of them, ignoring case, are removed. The default matches entries for disk partitions and for the loaders " +
		"shim and grub."}}
}

// cleanUEFINVRAM removes boot entries of the previous owner's systems from the firmware. If the machine was not booted
// by UEFI, it returns an error, because the firmware may contain entries nevertheless.
func (m *Manager) cleanUEFINVRAM(ctx context.Context, call hardware.Call) (any, error) {
	patterns, err := parsePatterns(call)
	if err != nil {
		return nil, err
	}
	return nil, bootloader.RemoveEntries(ctx, m.o.System, patterns, m.o.Log)
}

// parsePatterns returns the step's patterns. Null means the patterns for entries of disks and of the usual loaders of
// Linux; an empty list matches nothing.
func parsePatterns(call hardware.Call) ([]*regexp.Regexp, error) {
	var list []*string // pointers, to distinguish null from ""
	if raw, given := call.Args[matchPatterns]; given {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fault.InvalidCommandParams("'%s' must be a list of strings: %w", matchPatterns, err)
		}
	}
	if list == nil {
		disk, shim, grub := `^HD\(`, `shim.*\.efi`, `grub.*\.efi`
		list = []*string{&disk, &shim, &grub}
	}
	patterns := make([]*regexp.Regexp, 0, len(list))
	for i, text := range list {
		if text == nil {
			return nil, fault.InvalidCommandParams("'%s' must be a list of strings: entry %d is null",
				matchPatterns, i+1)
		}
		pattern, err := regexp.Compile("(?i)" + *text)
		if err != nil {
			return nil, fault.InvalidCommandParams("entry %d of '%s': %w", i+1, matchPatterns, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}
