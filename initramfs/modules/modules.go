package modules

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
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

// rule is a line of a group's file.
type rule struct {
	pattern string
	exclude bool
	arch    string // GOARCH of the kernels that have such a module, "" = all
}

// Selection is a union of groups.
type Selection struct{ groups [][]rule }

// Select returns the union of the named groups. An unknown name is an error.
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
		default:
			r, err := parseRule(line)
			if err != nil {
				return fmt.Errorf("module group %s: %w", name, err)
			}
			rules = append(rules, r)
		}
	}
	s.groups = append(s.groups, rules)
	return nil
}

// parseRule parses a line that is not empty, not a comment and not the name of a group.
func parseRule(line string) (rule, error) {
	words := strings.Fields(line)
	pattern, exclude := strings.CutPrefix(words[0], "!")
	switch {
	case len(words) == 1:
		return rule{pattern: pattern, exclude: exclude}, nil
	case len(words) == 2 && slices.Contains([]string{"amd64", "arm64"}, words[1]):
		return rule{pattern: pattern, exclude: exclude, arch: words[1]}, nil
	}
	return rule{}, fmt.Errorf("line %q, want a path and amd64, arm64 or nothing", line)
}

// Has reports whether a module belongs to the selection. name is its path below the kernel's tree without suffix, such
// as "drivers/net/virtio_net".
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
	if directory, ok := strings.CutSuffix(r.pattern, "/"); ok {
		return strings.HasPrefix(name, directory+"/")
	}
	matched, err := path.Match(r.pattern, name)
	return err == nil && matched
}
