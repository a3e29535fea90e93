package hint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"ironroot/internal/oslo"
	"ironroot/storage/block"
)

// minRootSize is the minimum size in bytes of a root disk that is chosen without hints.
const minRootSize = 4 << 30

// ErrNoDisk is wrapped by the errors of RootDisk if no disk matches.
var ErrNoDisk = errors.New("no suitable disk")

// Hints maps names to parsed hints. Nil and empty hints match every disk. Hints are created by Parse.
type Hints map[string]any

// textHints are the text hints, with functions that return a disk's values for them.
var textHints = map[string]func(block.Device) []string{
	"name":                 func(d block.Device) []string { return []string{d.Path} },
	"model":                func(d block.Device) []string { return []string{orNone(d.Model)} },
	"vendor":               func(d block.Device) []string { return []string{orNone(d.Vendor)} },
	"hctl":                 func(d block.Device) []string { return []string{orNone(d.HCTL)} },
	"tran":                 func(d block.Device) []string { return []string{orNone(d.Transport)} },
	"serial":               func(d block.Device) []string { return known(d.Serials, d.Serial) },
	"wwn":                  func(d block.Device) []string { return known(d.WWNs, d.WWN) },
	"wwn_with_extension":   func(d block.Device) []string { return []string{orNone(d.WWNWithExtension)} },
	"wwn_vendor_extension": func(d block.Device) []string { return []string{orNone(d.WWNVendorExtension)} },
	"by_path": func(d block.Device) []string {
		if paths := known(d.ByPaths, d.ByPath); len(paths) > 0 {
			return paths
		}
		return []string{"none"}
	},
}

func orNone(s string) string {
	if strings.TrimSpace(s) == "" {
		return "none"
	}
	return s
}

// known returns the elements of list and value that are not empty.
func known(list []string, value string) []string {
	all := append(slices.Clone(list), value)
	return slices.DeleteFunc(all, func(s string) bool { return strings.TrimSpace(s) == "" })
}

// Parse parses hints from a node's JSON. Unknown names, values of a wrong type, empty expressions, operators that
// cannot be used, and sizes that are not positive integers are errors.
func Parse(raw map[string]any) (Hints, error) {
	hints := Hints{}
	var problems []error
	for _, name := range sortedKeys(raw) {
		parsed, err := parseHint(name, raw[name])
		if err != nil {
			problems = append(problems, fmt.Errorf("device hint %q: %w", name, err))
			continue
		}
		hints[name] = parsed
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return hints, nil
}

func parseHint(name string, value any) (any, error) {
	switch {
	case name == "rotational":
		text := fmt.Sprint(value)
		rotational, ok := oslo.ParseBool(text)
		if !ok {
			return nil, fmt.Errorf("is not a boolean: %q", text)
		}
		return rotational, nil
	case name == "size":
		text, err := scalar(value)
		if err != nil {
			return nil, err
		}
		return parseSize(text)
	case textHints[name] != nil:
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("is not a string: %v", value)
		}
		return parseText(text)
	}
	return nil, fmt.Errorf("is unknown, known are %s",
		strings.Join(append(sortedKeys(textHints), "rotational", "size"), ", "))
}

// scalar formats a JSON value as text. Whole numbers have no fraction.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), nil
		}
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return "", fmt.Errorf("is neither a number nor a string: %v", value)
}

// Match reports whether the disk matches all hints. It returns an error if a number is compared with a text.
func (h Hints) Match(d block.Device) (bool, error) {
	for _, name := range sortedKeys(h) {
		ok, err := h.matchOne(name, d)
		if err != nil {
			return false, fmt.Errorf("device hint %q on %s: %w", name, d.Path, err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

func (h Hints) matchOne(name string, d block.Device) (bool, error) {
	switch hint := h[name].(type) {
	case bool:
		return hint == d.Rotational, nil
	case expression:
		if name == "size" {
			return hint.matchSize(float64(d.Size) / (1 << 30))
		}
		for _, value := range textHints[name](d) {
			if ok, err := hint.matchText(value); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
	return false, fmt.Errorf("was not made by Parse: %v", h[name])
}

// Find returns the devices that match, in their order.
func Find(h Hints, devices []block.Device) ([]block.Device, error) {
	var found []block.Device
	for _, device := range devices {
		ok, err := h.Match(device)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, device)
		}
	}
	return found, nil
}

// nameHints are the hints whose values name one disk, if the disk has them.
var nameHints = []string{"name", "serial", "wwn", "wwn_with_extension", "wwn_vendor_extension", "by_path"}

// NamesOnly reports whether a hint has the full path, serial number, world wide name or by_path of the disk as its
// value, and matches no other of the devices. Hints with other operators do not count.
func (h Hints) NamesOnly(d block.Device, devices []block.Device) bool {
	return slices.ContainsFunc(nameHints, func(name string) bool {
		e, ok := h[name].(expression)
		if !ok || !slices.Contains([]string{"s==", "==", "<or>"}, e.op) || slices.Contains(textHints[name](d), "none") {
			return false
		}
		found, err := Find(Hints{name: e}, devices)
		return err == nil && len(found) == 1 && found[0].Path == d.Path
	})
}

// RootDisk chooses the first disk that matches the hints, or without hints the smallest of at least 4 GiB. Disks of
// equal size are sorted by name. Its error wraps ErrNoDisk and names the hints, the disks, and the values of each disk
// that differ.
func RootDisk(h Hints, devices []block.Device) (block.Device, error) {
	switch {
	case len(devices) == 0 && len(h) == 0:
		return block.Device{}, fmt.Errorf("%w: no disks were found", ErrNoDisk)
	case len(devices) == 0:
		return block.Device{}, fmt.Errorf("%w: no disks were found to match the hints %s", ErrNoDisk, h)
	case len(h) > 0:
		found, err := Find(h, devices)
		if err != nil {
			return block.Device{}, fmt.Errorf("%w: %w", ErrNoDisk, err)
		}
		if len(found) == 0 {
			return block.Device{}, fmt.Errorf(
				"%w: no disk matches the hints %s: %s", ErrNoDisk, h, h.mismatches(devices))
		}
		return found[0], nil
	}
	sorted := slices.Clone(devices)
	sort.Slice(sorted, func(i, j int) bool {
		if sorted[i].Size != sorted[j].Size {
			return sorted[i].Size < sorted[j].Size
		}
		return sorted[i].Name < sorted[j].Name
	})
	for _, device := range sorted {
		if device.Size >= minRootSize {
			return device, nil
		}
	}
	return block.Device{}, fmt.Errorf("%w: none of %s has %s or more", ErrNoDisk, list(devices), sizeText(minRootSize))
}

// String formats the hints in the order of their names.
func (h Hints) String() string {
	var parts []string
	for _, name := range sortedKeys(h) {
		parts = append(parts, fmt.Sprintf("%s: %v", name, h[name]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// mismatches lists the disks with their values for the hints that they do not match.
func (h Hints) mismatches(devices []block.Device) string {
	var disks []string
	for _, d := range devices {
		var differ []string
		for _, name := range sortedKeys(h) {
			if ok, err := h.matchOne(name, d); !ok && err == nil {
				differ = append(differ, name+" "+valueText(name, d))
			}
		}
		disks = append(disks, fmt.Sprintf("%s has %s", d.Path, strings.Join(differ, ", ")))
	}
	return strings.Join(disks, "; ")
}

// valueText formats the value that a hint is compared with.
func valueText(name string, d block.Device) string {
	switch name {
	case "rotational":
		return strconv.FormatBool(d.Rotational)
	case "size":
		if rest := d.Size % (1 << 30); rest != 0 {
			return fmt.Sprintf("%d GiB and %d bytes", d.Size>>30, rest)
		}
		return sizeText(d.Size)
	}
	var values []string
	for _, value := range textHints[name](d) {
		if quoted := strconv.Quote(value); !slices.Contains(values, quoted) {
			values = append(values, quoted)
		}
	}
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, " or ")
}

func list(devices []block.Device) string {
	var parts []string
	for _, d := range devices {
		parts = append(parts, fmt.Sprintf("%s (%s)", d.Path, sizeText(d.Size)))
	}
	return strings.Join(parts, ", ")
}

// sizeText formats a size in GiB, rounded down so that a disk that is too small never seems large enough, or in bytes
// if it is less than a hundredth of a GiB.
func sizeText(size int64) string {
	gib := math.Floor(float64(size)/(1<<30)*100) / 100
	if gib == 0 {
		return fmt.Sprintf("%d bytes", size)
	}
	return strconv.FormatFloat(gib, 'f', -1, 64) + " GiB"
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
