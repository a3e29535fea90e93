package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
)

// String lists the options that differ from their defaults; secrets show as "***". It is there for values too, not only
// for pointers, so that no copy prints in full.
func (c Config) String() string {
	defaults := &Config{}
	var parts []string
	for _, o := range options() {
		if o.def != "" {
			if err := o.set(defaults, o.def); err != nil {
				return fmt.Sprintf("configuration with a wrong default: %v", err)
			}
		}
		got := reflect.ValueOf(c).FieldByIndex(o.index).Interface()
		if reflect.DeepEqual(got, reflect.ValueOf(defaults).Elem().FieldByIndex(o.index).Interface()) {
			continue
		}
		if o.secret {
			got = "***"
		}
		parts = append(parts, fmt.Sprintf("%s=%v", o.fullName(), got))
	}
	return strings.Join(parts, " ")
}

// GoString is String: no way of printing shows a secret.
func (c Config) GoString() string { return c.String() }

// LogValue keeps secrets out of logs.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
