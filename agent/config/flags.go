package config

import (
	"fmt"
	"strings"
)

// flagValue is an option on the command line.
type flagValue struct {
	option   option
	spelling string // as the operator wrote it
	value    string
}

// flagSet contains the parsed flags of a command line.
type flagSet struct {
	values      []flagValue
	configFiles []string
	configDirs  []string
}

// parseFlags parses --name value and --name=value, and --name for booleans. The value of a boolean must follow "=".
// Options of the default group are flags, spelled with dashes or underscores.
func parseFlags(list []option, args []string) (flagSet, error) {
	var set flagSet
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "-h" || arg == "--help" {
			return set, ErrHelp
		}
		spelling, value, hasValue := strings.Cut(arg, "=")
		name, isFlag := strings.CutPrefix(spelling, "--")
		if !isFlag || name == "" {
			return set, fmt.Errorf("argument %q is not a flag", spelling)
		}
		name = underscores(name)
		o, known := findFlag(list, name)
		if !known && name != "config_file" && name != "config_dir" {
			return set, fmt.Errorf("flag %s is unknown", spelling)
		}
		if !hasValue && o.kind == "boolean" {
			value, hasValue = "true", true
		}
		if !hasValue {
			if len(args) == 0 {
				return set, fmt.Errorf("flag %s needs a value", spelling)
			}
			value, args = args[0], args[1:]
		}
		switch name {
		case "config_file":
			set.configFiles = append(set.configFiles, value)
		case "config_dir":
			set.configDirs = append(set.configDirs, value)
		default:
			set.values = append(set.values, flagValue{o, spelling, value})
		}
	}
	return set, nil
}

func findFlag(list []option, name string) (option, bool) {
	for _, o := range list {
		if o.group == defaultGroup && underscores(o.name) == name {
			return o, true
		}
	}
	return option{}, false
}
