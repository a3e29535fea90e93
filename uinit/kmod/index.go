// Package kmod finds and loads the kernel modules of the ramdisk.
//
// In the ramdisk, each module is a separate file, compressed with xz if the kernel can unpack that, and otherwise
// with Zstandard. An index contains the names, sizes, dependencies and aliases of the modules, as `modinfo` shows
// them. The index is text with one field per line:
//
//	ironroot modules 1
//	m NAME SIZE DIR      a module: name with "_" for "-", unpacked size in bytes, directory in the kernel's tree
//	d NAME...            modules to load before it
//	s NAME...            modules to load before it, if they exist (soft dependencies)
//	p NAME...            modules to load after it, if they exist
//	a ALIAS              pattern of a modalias, or a name by which the kernel requests it
//	f FILE BASE          firmware that is stored as a delta: names below /lib/firmware
//
// The kernel requests modules in three ways: by the modalias of a device in sysfs, by the modalias in a uevent, and
// by running /sbin/modprobe for a file system, a RAID level or a cipher (Documentation/admin-guide/sysctl/kernel.rst,
// "modprobe"). Loader serves all three.
package kmod

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
)

const indexMagic = "ironroot modules 1"

// maxModuleSize limits an unpacked module, in bytes.
const maxModuleSize = 64 << 20

// Module is an entry of the index.
type Module struct {
	Name     string
	Size     int64  // bytes, unpacked
	Dir      string // in the kernel's tree, "drivers/net/ethernet/intel/e1000e"
	Depends  []string
	Pre      []string
	Post     []string
	Aliases  []string
	Firmware []string // names below /lib/firmware; not part of the written index
	Deltas   []Delta  // firmware that is restored before the module is loaded
	Release  string   // of the kernel it was built for; not part of the written index
}

// Network reports whether a network interface can need the module, which is then loaded first. The directories contain
// drivers and the buses of virtual machines. The buses cannot be derived from the index: the driver of a bus, such as
// virtio_pci, is no dependency of the drivers of its devices.
func (m *Module) Network() bool {
	for _, dir := range []string{"drivers/net", "drivers/virtio", "drivers/hv"} {
		if m.Dir == dir || strings.HasPrefix(m.Dir, dir+"/") {
			return true
		}
	}
	return false
}

// Index is the set of modules of a ramdisk.
type Index struct {
	modules  map[string]*Module
	patterns map[string][]pattern // by the literal text before the first wildcard
	longest  int                  // length of the longest key of patterns
}

type pattern struct {
	glob   string
	module *Module
}

// NewIndex returns an index of modules.
func NewIndex(modules []*Module) *Index {
	x := &Index{modules: make(map[string]*Module, len(modules)), patterns: make(map[string][]pattern, 8*len(modules))}
	for _, m := range modules {
		x.modules[m.Name] = m
		for _, alias := range m.Aliases {
			literal := alias
			if i := strings.IndexAny(alias, "*?[\\"); i >= 0 {
				literal = alias[:i]
			}
			x.patterns[literal] = append(x.patterns[literal], pattern{alias, m})
			x.longest = max(x.longest, len(literal))
		}
	}
	return x
}

// Module returns the module of that name, or nil.
func (x *Index) Module(name string) *Module { return x.modules[Normalize(name)] }

// Match returns the modules that match a modalias or a name, sorted by name.
func (x *Index) Match(alias string) []*Module {
	var found []*Module
	if m := x.Module(alias); m != nil {
		found = append(found, m)
	}
	seen := map[*Module]bool{}
	for i := 0; i <= min(len(alias), x.longest); i++ {
		for _, p := range x.patterns[alias[:i]] {
			if !seen[p.module] && Glob(p.glob, alias) {
				seen[p.module] = true
				found = append(found, p.module)
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found
}

// Normalize returns a module's name as the kernel spells it, with "_" for "-".
func Normalize(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Write writes the index. It returns the error of the first failed write. Names of firmware must not contain spaces.
func Write(w io.Writer, modules []*Module) error {
	b := bufio.NewWriter(w)
	_, _ = fmt.Fprintln(b, indexMagic)
	for _, m := range modules {
		_, _ = fmt.Fprintln(b, "m", m.Name, m.Size, m.Dir)
		for _, line := range []struct {
			key   string
			names []string
		}{{"d", m.Depends}, {"s", m.Pre}, {"p", m.Post}} {
			if len(line.names) > 0 {
				_, _ = fmt.Fprintln(b, line.key, strings.Join(line.names, " "))
			}
		}
		for _, alias := range m.Aliases {
			_, _ = fmt.Fprintln(b, "a", alias)
		}
		for _, d := range m.Deltas {
			if strings.ContainsAny(d.File+d.Base, " \n") {
				return fmt.Errorf("firmware %q with base %q of module %s: space in a name", d.File, d.Base, m.Name)
			}
			_, _ = fmt.Fprintln(b, "f", d.File, d.Base)
		}
	}
	return b.Flush()
}

// Parse parses an index.
func Parse(text string) (*Index, error) {
	header, text, _ := strings.Cut(text, "\n")
	if header != indexMagic {
		return nil, fmt.Errorf("module index starts with %q, want %q", header, indexMagic)
	}
	var modules []*Module
	number := 1
	for line := range strings.Lines(text) {
		number++
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if key == "m" {
			m, err := parseModule(value)
			if err != nil {
				return nil, fmt.Errorf("module index, line %d: %w", number, err)
			}
			modules = append(modules, m)
			continue
		}
		if len(modules) == 0 || !modules[len(modules)-1].add(key, value) {
			return nil, fmt.Errorf("module index, line %d: %q is unknown", number, line)
		}
	}
	return NewIndex(modules), nil
}

func parseModule(value string) (*Module, error) {
	name, rest, _ := strings.Cut(value, " ")
	number, dir, _ := strings.Cut(rest, " ")
	size, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, err
	}
	if size < 0 || size > maxModuleSize {
		return nil, fmt.Errorf("size of module %s is %d, want at most %d", name, size, maxModuleSize)
	}
	if name == "" || strings.Contains(name, "/") {
		return nil, errors.New("module without a valid name")
	}
	return &Module{Name: name, Size: size, Dir: dir}, nil
}

func (m *Module) add(key, value string) bool {
	switch key {
	case "d":
		m.Depends = strings.Fields(value)
	case "s":
		m.Pre = strings.Fields(value)
	case "p":
		m.Post = strings.Fields(value)
	case "a":
		m.Aliases = append(m.Aliases, value)
	case "f":
		file, base, _ := strings.Cut(value, " ")
		m.Deltas = append(m.Deltas, Delta{file, base})
	default:
		return false
	}
	return true
}

// Glob matches a pattern of fnmatch(3) without flags against the whole of s, as modprobe does.
func Glob(pattern, s string) bool {
	// star and mark are the positions at which the match resumes after a mismatch, when the last "*" matches one more
	// character.
	star, mark, p, i := -1, 0, 0, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, mark = p, i
			p++
			continue
		}
		if next, ok := matchOne(pattern, p, s[i]); ok {
			p = next
			i++
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches one character against the pattern's element at p, and returns the position of the next element.
func matchOne(pattern string, p int, c byte) (next int, ok bool) {
	if p >= len(pattern) {
		return p, false
	}
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		end := strings.IndexByte(pattern[p+1:], ']')
		if end < 0 {
			return p + 1, c == '['
		}
		return p + end + 2, inSet(pattern[p+1:p+1+end], c)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, pattern[p] == c
}

func inSet(set string, c byte) bool {
	negated := strings.HasPrefix(set, "!")
	set = strings.TrimPrefix(set, "!")
	for i := 0; i < len(set); i++ {
		if i+2 < len(set) && set[i+1] == '-' {
			if set[i] <= c && c <= set[i+2] {
				return !negated
			}
			i += 2
		} else if set[i] == c {
			return !negated
		}
	}
	return negated
}
