// Package oslo parses values in the spellings that OpenStack's oslo libraries accept.
package oslo

import "strings"

// ParseBool parses a boolean as oslo_utils.strutils.bool_from_string does in strict mode: white space around the text
// and the case of its letters are ignored. It returns ok false for any other text.
func ParseBool(text string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, true
	case "0", "f", "false", "off", "n", "no":
		return false, true
	}
	return false, false
}
