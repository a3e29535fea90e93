package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
)

// String lists the options that differ from their defaults. It prints secrets as "***". The receiver is a value, so
// that copies do not print secrets either.
func (c Config) String() string {
	defaults := &Config{}
	var parts []string
	for _, o := range options() {
		if o.def != "" {
			if err := o.set(defaults, o.def); err != nil {
				return fmt.Sprintf("configuration with a wrong default: %v", err)
			}
		}
		got := o.value(&c).Interface()
		if reflect.DeepEqual(got, o.value(defaults).Interface()) {
			continue
		}
		if o.secret {
			got = "***"
		}
		parts = append(parts, fmt.Sprintf("%s=%v", o.fullName(), got))
	}
	return strings.Join(parts, " ")
}

// GoString returns the same as String, because %#v must not print secrets.
func (c Config) GoString() string { return c.String() }

// LogValue returns the same as String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
