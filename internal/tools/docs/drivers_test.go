package main

import (
	"strings"
	"testing"

	"ironroot/initramfs/modules"
)

// TestDriverCoverage counts the PCI IDs of the kernel's drivers of each kind. Apart from the reviewed drivers of old
// hardware, the groups contain the drivers of at least 99 % of them.
func TestDriverCoverage(t *testing.T) {
	const minPercent = 99
	unused := map[string]bool{}
	for _, l := range legacyDrivers {
		unused[l.pattern] = true
	}
	for _, arch := range []string{"amd64", "arm64"} {
		files, err := debianModules(t.Context(), arch)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range driverKinds {
			selection, err := modules.Select(kind.groups)
			if err != nil {
				t.Fatal(err)
			}
			total, covered := 0, 0
			var missing []string
			for _, f := range files {
				ids := pciIDs(f.Info)
				if ids == 0 || !kind.has(f.Tree) {
					continue
				}
				has := selection.Has(f.Tree)
				if pattern := legacyPattern(f.Tree); pattern != "" {
					delete(unused, pattern)
					if has {
						t.Errorf("%s: the image has %s, which %s lists as old", arch, f.Tree, pattern)
					}
					continue
				}
				total += ids
				if has {
					covered += ids
				} else {
					missing = append(missing, f.Tree)
				}
			}
			if covered*100 < total*minPercent {
				t.Errorf("%s: %s: drivers of %d of %d PCI IDs, want %d %%; missing: %s",
					arch, kind.name, covered, total, minPercent, strings.Join(missing, ", "))
			}
			t.Logf("%s: %s: drivers of %d of %d PCI IDs; missing: %s",
				arch, kind.name, covered, total, strings.Join(missing, ", "))
		}
	}
	for pattern := range unused {
		t.Errorf("%s matches no driver: remove it from the list", pattern)
	}
}
