package config

import (
	"fmt"
	"reflect"
	"strconv"
)

// setAny is like set, for a value as encoding/json decodes it.
func (o option) setAny(c *Config, value any) error {
	switch v := value.(type) {
	case string:
		return o.set(c, v)
	case bool:
		if o.kind == "boolean" {
			return o.set(c, strconv.FormatBool(v))
		}
	case float64:
		if o.isNumber() {
			return o.set(c, strconv.FormatFloat(v, 'f', -1, 64))
		}
	case []any:
		return o.setList(c, v)
	}
	return fmt.Errorf("got %v, want a %s", value, o.kind)
}

// setList sets an option of kind list. Items can contain commas.
func (o option) setList(c *Config, items []any) error {
	if o.kind != "list" {
		return fmt.Errorf("got a list, want a %s", o.kind)
	}
	list := make([]string, 0, len(items))
	for _, item := range items {
		text, ok := item.(string)
		if !ok {
			return fmt.Errorf("got %v in a list, want strings", item)
		}
		list = append(list, text)
	}
	o.value(c).Set(reflect.ValueOf(list))
	return nil
}
