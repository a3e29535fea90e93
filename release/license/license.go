package license

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"

	"ironroot/internal/bounded"
	"ironroot/release/spdx"
)

// Found is the licence of something.
type Found struct {
	Expression string         // of SPDX; "" = unknown
	Licenses   []spdx.License // texts of the licences in Expression that are not on the list of SPDX
}

// all returns the licence of something to which all of the licences apply.
func all(found ...Found) Found {
	var result Found
	var parts []string
	for _, f := range found {
		if f.Expression == "" || slices.Contains(parts, f.Expression) {
			continue
		}
		parts = append(parts, f.Expression)
		result.Licenses = append(result.Licenses, f.Licenses...)
	}
	slices.Sort(parts)
	if len(parts) > 1 {
		for i, part := range parts {
			if strings.Contains(part, " OR ") {
				parts[i] = "(" + part + ")"
			}
		}
	}
	result.Expression = strings.Join(parts, " AND ")
	return result
}

// All returns the licence of something to which all of the licences apply. Those that are unknown are ignored.
func All(found []Found) Found { return all(found...) }

const (
	maxLicense = 1 << 20 // bytes of a file with a licence
	// minCoverage is the part of a file, in percent, that must be the text of known licences.
	minCoverage = 75
)

// licenseFile matches the names of files with a licence at the top of a Go module.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)(-[a-z0-9.-]+)?(\.(md|txt|rst|code))?$`)

// OfModule returns the licence of the Go module in a directory: the licence in the files at its top whose names are
// usual for licences. If a file has several licences, all of them apply. The name of the module is part of the ID of a
// licence that is not known.
func OfModule(name, dir string) (Found, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Found{}, fmt.Errorf("licence of %s: %w", name, err)
	}
	var found []Found
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := bounded.ReadFile(filepath.Join(dir, e.Name()), maxLicense)
		if err != nil {
			return Found{}, fmt.Errorf("licence of %s: %w", name, err)
		}
		found = append(found, ofText(name, text))
	}
	return all(found...), nil
}

// notListed are the IDs of licensecheck that are not on the list of SPDX.
var notListed = []string{
	"Aladdin-9", "Anti996", "BSD-1-Clause-Clear", "BSD-3-Clause-NoTrademark", "CC-BY-NC-SA-3.0-US", "CommonsClause",
	"GPL-2.0-or-3.0", "GooglePatentClause", "GooglePatentsFile", "MIT-NoAd", "Prosperity-3.0.0",
}

// ofText returns the licences in a text.
func ofText(name string, text []byte) Found {
	coverage := licensecheck.Scan(text)
	if coverage.Percent < minCoverage {
		return reference(name, "", string(text))
	}
	var found []Found
	for _, match := range coverage.Match {
		if slices.Contains(notListed, match.ID) {
			found = append(found, reference(name, match.ID, string(text[match.Start:match.End])))
			continue
		}
		found = append(found, Found{Expression: match.ID})
	}
	return all(found...)
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// reference returns a licence that is not on the list of SPDX. It belongs to the package owner.
func reference(owner, name, text string) Found {
	id := "LicenseRef-" + strings.Trim(notInID.ReplaceAllString(strings.TrimSuffix(owner+"-"+name, "-"), "-"), "-")
	return Found{id, []spdx.License{{ID: id, Name: cmp.Or(name, owner), Text: text}}}
}

// modinfo are the values of MODULE_LICENSE that name one licence, see Documentation/process/license-rules.rst of the
// kernel. "GPL" does not tell whether later versions apply, so that only version 2 is certain.
var modinfo = map[string]string{
	"GPL": "GPL-2.0-only", "GPL v2": "GPL-2.0-only", "GPL and additional rights": "GPL-2.0-only",
	"Dual MIT/GPL": "MIT OR GPL-2.0-only", "Dual MPL/GPL": "MPL-1.1 OR GPL-2.0-only",
}

// OfKernelModule returns the licence that a kernel module names in its modinfo.
func OfKernelModule(name string) Found {
	if name == "" {
		return Found{}
	}
	if known := modinfo[name]; known != "" {
		return Found{Expression: known}
	}
	return reference("modinfo", name, "The kernel module names its licence as: "+name)
}
