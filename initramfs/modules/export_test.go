package modules

// Unmatched returns the lines of the groups that apply to the architecture and match none of names.
func Unmatched(groups []string, arch string, names []string) ([]string, error) {
	s, err := Select(groups)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, rules := range s.groups {
		for _, r := range rules {
			if !r.exclude && (r.arch == arch || r.arch == "" && arch == "amd64") && !r.matchesAny(names) {
				lines = append(lines, r.pattern)
			}
		}
	}
	return lines, nil
}

func (r rule) matchesAny(names []string) bool {
	for _, name := range names {
		if r.matches(name) {
			return true
		}
	}
	return false
}
