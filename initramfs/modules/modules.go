// Package modules holds the groups of kernel modules that an image can be given, as lists one can read, and picks them
// from a kernel's tree.
package modules

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"
)

//go:embed *.txt
var lists embed.FS

// Groups returns the names of all groups.
func Groups() []string {
	files, err := fs.Glob(lists, "*.txt")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for i, name := range files {
		files[i] = strings.TrimSuffix(name, ".txt")
	}
	sort.Strings(files)
	return files
}

// rule is a line of a list.
type rule struct {
	pattern string
	exclude bool
}

// Selection is the union of some groups.
type Selection struct{ groups [][]rule }

// Select reads groups by name.
func Select(names []string) (Selection, error) {
	var s Selection
	for _, name := range names {
		if err := s.add(name, nil); err != nil {
			return Selection{}, err
		}
	}
	return s, nil
}

func (s *Selection) add(name string, above []string) error {
	text, err := lists.ReadFile(name + ".txt")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("module group %q is unknown, want none or some of %s", name, strings.Join(Groups(), ", "))
	}
	if err != nil {
		return err
	}
	for _, over := range above {
		if over == name {
			return fmt.Errorf("module group %s contains itself", name)
		}
	}
	var rules []rule
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "@"):
			if err := s.add(line[1:], append(above, name)); err != nil {
				return err
			}
		case strings.HasPrefix(line, "!"):
			rules = append(rules, rule{line[1:], true})
		default:
			rules = append(rules, rule{line, false})
		}
	}
	s.groups = append(s.groups, rules)
	return nil
}

// Has says whether a module belongs to the selection. name is its path below the kernel's tree without suffix, such as
// "drivers/net/virtio_net".
func (s Selection) Has(name string) bool {
	for _, rules := range s.groups {
		chosen := false
		for _, r := range rules {
			if r.matches(name) {
				chosen = !r.exclude
			}
		}
		if chosen {
			return true
		}
	}
	return false
}

func (r rule) matches(name string) bool {
	if folder, ok := strings.CutSuffix(r.pattern, "/"); ok {
		return strings.HasPrefix(name, folder+"/")
	}
	matched, err := path.Match(r.pattern, name)
	return err == nil && matched
}
