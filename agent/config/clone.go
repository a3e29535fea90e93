package config

import (
	"maps"
	"reflect"
	"slices"
)

// clone returns a deep copy of c.
func (c *Config) clone() *Config {
	n := *c
	for _, o := range options() {
		field := o.value(&n)
		switch value := field.Interface().(type) {
		case []string:
			field.Set(reflect.ValueOf(slices.Clone(value)))
		case map[string]string:
			field.Set(reflect.ValueOf(maps.Clone(value)))
		}
	}
	n.Params = maps.Clone(c.Params)
	return &n
}
