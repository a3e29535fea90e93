package ironic

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
)

// Version is a version of Ironic's API, 1.62 for example.
type Version struct{ Major, Minor int }

var versionText = regexp.MustCompile(`^([0-9]{1,6})\.([0-9]{1,6})$`)

// ParseVersion reads "1.62".
func ParseVersion(text string) (Version, error) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("API version %q is not of the form MAJOR.MINOR", text)
	}
	major, _ := strconv.Atoi(m[1]) // the expression leaves digits only, and few of them
	minor, _ := strconv.Atoi(m[2])
	return Version{major, minor}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// AtLeast reports whether v is other or newer.
func (v Version) AtLeast(other Version) bool {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor)) >= 0
}

// older returns the older one of both.
func (v Version) older(other Version) Version {
	if v.AtLeast(other) {
		return other
	}
	return v
}
