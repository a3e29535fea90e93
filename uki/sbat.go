package uki

import (
	"fmt"
	"strings"
)

// sbatHeader is the first row of the metadata for revocation (SBAT, rhboot/shim).
const sbatHeader = "sbat,1,SBAT Version,sbat,1,https://github.com/rhboot/shim/blob/main/SBAT.md"

// uefiRow is the row of all unified kernel images, as ukify writes it.
const uefiRow = "uki,1,UKI,uki,1,https://uapi-group.org/specifications/specs/unified_kernel_image/\n"

// mergeSBAT returns a .sbat section with the rows of other sections, which can be empty.
func mergeSBAT(sections ...[]byte) ([]byte, error) {
	rows := []string{sbatHeader}
	for _, s := range sections {
		text := strings.TrimRight(string(s), "\x00")
		if strings.TrimSpace(text) == "" {
			continue
		}
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		if !strings.HasPrefix(lines[0], "sbat,") {
			return nil, fmt.Errorf(".sbat section begins with %q, want sbat", lines[0])
		}
		for _, line := range lines[1:] {
			line = strings.TrimSuffix(line, "\r")
			if strings.Count(line, ",") < 1 || strings.ContainsFunc(line, isControl) {
				return nil, fmt.Errorf(".sbat section has the row %q, want component and generation", line)
			}
			rows = append(rows, line)
		}
	}
	return []byte(strings.Join(rows, "\n") + "\n\x00"), nil
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }
