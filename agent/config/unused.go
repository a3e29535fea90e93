package config

import (
	"cmp"
	"reflect"
	"slices"
)

// Unused is a setting that has no effect.
type Unused struct{ Name, Reason string }

// Unused returns the settings that have no effect: options without an effect whose value is not the default, settings
// of unsigned sources that were ignored, and a $ that oslo.config would replace.
func (c *Config) Unused() []Unused {
	var found []Unused
	var defaults Config
	for _, o := range options() {
		if o.unused == "" {
			continue
		}
		if o.def != "" {
			_ = o.set(&defaults, o.def) // an invalid default fails every Load
		}
		if !sameValue(o.value(&defaults), o.value(c)) {
			found = append(found, Unused{o.fullName(), o.unused})
		}
	}
	found = append(found, c.ignored...)
	slices.SortStableFunc(found, func(a, b Unused) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// sameValue reports whether two values of an option are equal. An empty list or map equals one that is not set.
func sameValue(a, b reflect.Value) bool {
	if (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
