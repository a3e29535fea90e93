// Package debtest fetches Debian packages for tests.
package debtest

import (
	"slices"
	"strings"
	"testing"

	"ironroot/initramfs/debian"
)

// Packages fetches a package of a Debian suite and the dependencies whose names start with one of prefixes. It returns
// the paths of the files. The suite "" is the default one.
func Packages(t testing.TB, suite, pkg string, prefixes ...string) []string {
	t.Helper()
	archive, err := debian.Open(debian.Options{Suite: suite, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	debs, err := archive.FetchAll(t.Context(), pkg, func(name string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return debs
}
