package iso

import "fmt"

// checkLabel checks the d-characters and the length of a volume identifier (ECMA-119, 7.4.1 and 8.4.7). Lower case
// and the hyphen are allowed too, because they are common.
func checkLabel(label string) error {
	const longest = 32
	if len(label) > longest {
		return fmt.Errorf("label %q has %d characters, want at most %d", label, len(label), longest)
	}
	for _, c := range label {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return fmt.Errorf("label %q has a %q, want letters, digits, _ and -", label, c)
		}
	}
	return nil
}
