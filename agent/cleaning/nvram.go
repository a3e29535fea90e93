package cleaning

import (
	"context"
	"encoding/json"
	"regexp"

	"ironroot/agent/fault"
	"ironroot/storage/bootloader"
)

// MatchPatterns is the name of the argument of RemoveBootEntries.
const MatchPatterns = "match_patterns"

// RemoveBootEntries removes boot entries of the previous owner's systems from the firmware. Its argument is a list of
// regular expressions as JSON, nil means the default. If the machine was not booted by UEFI, it returns an error,
// because the firmware may contain entries nevertheless.
func (m *Steps) RemoveBootEntries(ctx context.Context, matchPatterns json.RawMessage) error {
	patterns, err := parsePatterns(matchPatterns)
	if err != nil {
		return err
	}
	return bootloader.RemoveEntries(ctx, m.o.System, patterns, m.o.Log)
}

// parsePatterns returns the step's patterns. Null means the patterns for entries of disks and of the usual loaders of
// Linux; an empty list matches nothing.
func parsePatterns(matchPatterns json.RawMessage) ([]*regexp.Regexp, error) {
	var list []*string // pointers, to distinguish null from ""
	if matchPatterns != nil {
		if err := json.Unmarshal(matchPatterns, &list); err != nil {
			return nil, fault.InvalidCommandParams("'%s' must be a list of strings: %w", MatchPatterns, err)
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
				MatchPatterns, i+1)
		}
		pattern, err := regexp.Compile("(?i)" + *text)
		if err != nil {
			return nil, fault.InvalidCommandParams("entry %d of '%s': %w", i+1, MatchPatterns, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}
