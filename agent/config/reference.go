package config

import (
	"errors"
	"io"
)

// Reference writes the reference of all options as a Markdown table per group.
func Reference(w io.Writer) error { return errors.New("not implemented") }

// Usage writes the flags with their defaults, for the command's help.
func Usage(w io.Writer) error { return errors.New("not implemented") }
