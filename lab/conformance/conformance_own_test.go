//go:build linux

package conformance

import (
	"bytes"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDifferences(t *testing.T) {
	for _, tt := range []struct {
		want, got string
		paths     []string
	}{
		{`{"a": [1, {"b": null}]}`, `{"a": [1, {"b": null}]}`, nil},
		{`{"a": 1, "b": 2}`, `{"a": 2, "c": 2}`, []string{"/a", "/b", "/c"}},
		{`{"a": null}`, `{}`, []string{"/a"}},
		{`[1, 2]`, `[1, 3]`, []string{"/1"}},
		{`{"a": [1]}`, `{"a": [1, 2]}`, []string{"/a"}},
		{`{"a": {}}`, `{"a": []}`, []string{"/a"}},
	} {
		var paths []string
		for _, d := range differences("", parse(tt.want), parse(tt.got)) {
			paths = append(paths, d.path)
		}
		if diff := cmp.Diff(tt.paths, paths); diff != "" {
			t.Errorf("%s and %s (-want +got):\n%s", tt.want, tt.got, diff)
		}
	}
}

// An additional request does not hide a difference of another one, before or after it.
func TestRequestDifferences(t *testing.T) {
	request := func(path, version string) any { return object{"method": "GET", "path": path, "version": version} }
	for _, tt := range []struct {
		name      string
		want, got []any
		paths     []string
	}{
		{
			"additional",
			[]any{request("/", "1"), request("/a", "1"), request("/b", "1")},
			[]any{request("/", "1"), request("/a", "2"), request("/a", "1"), request("/b", "2")},
			[]string{"/1/version", "/+2", "/2/version"},
		},
		{
			"missing",
			[]any{request("/", "1"), request("/a", "1"), request("/b", "1")},
			[]any{request("/", "1"), request("/b", "2")},
			[]string{"/1", "/2/version"},
		},
		{"none", []any{request("/", "1")}, nil, []string{"/0"}},
		{"other lists", []any{"a"}, []any{"a", "b"}, []string{""}},
	} {
		var paths []string
		for _, d := range differences("", tt.want, tt.got) {
			paths = append(paths, d.path)
		}
		if diff := cmp.Diff(tt.paths, paths); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A listed difference is one between the listed values only.
func TestListedValues(t *testing.T) {
	l := &listed{
		found:   map[string]bool{},
		entries: []Deviation{{Scenarios: []string{"a*"}, Path: "/x/*", Want: "1", Got: `"2"`}},
	}
	for _, tt := range []struct {
		scenario string
		found    difference
		want     bool
	}{
		{"ab", difference{"/x/y", 1.0, "2"}, true},
		{"ab", difference{"/x/y", 1.0, "3"}, false},
		{"ab", difference{"/x/y", 2.0, "2"}, false},
		{"b", difference{"/x/y", 1.0, "2"}, false},
		{"ab", difference{"/x/y/z", 1.0, "2"}, false},
	} {
		if got := l.mark(tt.scenario, tt.found); got != tt.want {
			t.Errorf("%s %v: contained is %v, want %v", tt.scenario, tt.found, got, tt.want)
		}
	}
}

// A scenario whose disks are as in another one is compared with the recorded disks of that one.
func TestListedLike(t *testing.T) {
	with := func(root, other string) observation {
		return observation{Disks: map[string]*diskState{
			"ROOT": {Whole: map[string]string{"PTTYPE": root}}, "OTHER": {Whole: map[string]string{"PTTYPE": other}},
		}}
	}
	refused := scenario{name: "refused", disks: []string{"ROOT", "OTHER"}}
	for _, tt := range []struct {
		path string
		want observation
	}{
		{"/disks/*", with("gpt", "gpt")}, {"/disks/ROOT", with("gpt", "dos")}, {"/disks/OTHER", with("dos", "gpt")},
	} {
		r := recording{Scenarios: map[string]observation{"refused": with("dos", "dos"), "written": with("gpt", "gpt")}}
		l := &listed{found: map[string]bool{}, entries: []Deviation{
			{Scenarios: []string{"refused"}, Path: tt.path, Like: "written"},
		}}
		if found := differences("", comparison(tt.want), l.expected(r, refused)); len(found) > 0 {
			t.Errorf("%s: got the differences %v, want none", tt.path, found)
		}
		if missing := l.missing(group{}); len(missing) > 0 {
			t.Errorf("%s: got %v, want no missing difference", tt.path, missing)
		}
		l.found, r.Scenarios["refused"] = map[string]bool{}, with("gpt", "gpt")
		l.expected(r, refused)
		if missing := l.missing(group{}); len(missing) != 1 {
			t.Errorf("%s: both recordings have the same disks: got %v, want a missing difference", tt.path, missing)
		}
	}
}

// No recorded command of ironic-python-agent fails because its machine lacks a program. Only podman is missing, as row
// F9 of docs/parity.md says. Recordings that contain placeholders instead of texts of errors are not examined.
func TestRecordedErrors(t *testing.T) {
	missing := regexp.MustCompile(`No such file or directory: '[\w-]+'|command not found`)
	for _, g := range groups() {
		for name, o := range readRecording(t, g.name).Scenarios {
			for _, x := range o.Agent {
				for _, text := range missing.FindAllString(encode(x.Body), -1) {
					if !strings.HasSuffix(text, "'podman'") {
						t.Errorf("%s: %s: %s", g.name, name, text)
					}
				}
			}
		}
	}
}

// The first sector of this ramdisk that cylinders permits has the partitions that ironic-python-agent leaves, and the
// addresses of cylinder, head and sector of the suite's images, which new partitions have too.
func TestCylinders(t *testing.T) {
	found := 0
	for _, d := range Deviations() {
		if !strings.HasSuffix(d.Path, "/ranges/0/what") || d.Want == "" {
			continue
		}
		r := readRecording(t, d.Group)
		for name, o := range r.Scenarios {
			matches, err := path.Match(d.Scenarios[0], name)
			disk := o.Disks[strings.Split(d.Path, "/")[2]]
			if err != nil || !matches || disk == nil || disk.Ranges == nil || encode(disk.Ranges[0].What) != d.Want {
				continue
			}
			found++
			got, err := digest(bytes.NewReader(firstSector(t, disk.Table)), 0, 512)
			if err != nil || encode(got) != d.Got {
				t.Errorf("%s: %s: the first sector has the digest %q (%v), want %s", d.Group, name, got, err, d.Got)
			}
		}
	}
	if found == 0 {
		t.Error("no first sector was compared")
	}
}

// firstSector returns the first sector of a disk with the partitions of a table.
func firstSector(t *testing.T, of *table) []byte {
	t.Helper()
	if of.Label == "gpt" {
		return firstSectorOfGPT(of.LastLBA + gptEntries*gptEntrySize/int64(of.Sector) + 1)
	}
	var entries []mbrPartition
	for _, p := range of.Partitions {
		kind, err := strconv.ParseUint(p.Type, 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		if p.Number > 4 {
			break // logical partitions
		}
		entries = append(entries, make([]mbrPartition, p.Number-len(entries))...)
		entries[p.Number-1] = mbrPartition{byte(kind), uint32(p.Start), uint32(p.Size)}
	}
	return mbr(0x11223344, entries...)
}
