package config

import (
	"fmt"
	"io"
	"strings"
)

// Reference writes the reference of all options as Markdown, a table per group.
func Reference(w io.Writer) error {
	var text strings.Builder
	group := ""
	for _, o := range options() {
		if o.group != group {
			group = o.group
			fmt.Fprintf(&text, "\n## [%s]\n\n| Option | Kernel parameter | Type | Default | Meaning |\n|---|---|---|---|---|\n", group)
		}
		kernel := "–"
		if o.kernel != "" {
			kernel = "`" + o.kernel + "`"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", o.name, kernel, o.typeText(), o.defaultText(), o.help)
	}
	_, err := io.WriteString(w, strings.TrimPrefix(text.String(), "\n"))
	return err
}

// Usage writes all flags with their types and defaults, for the command's help.
func Usage(w io.Writer) error {
	var text strings.Builder
	line := func(flag, help string) { fmt.Fprintf(&text, "  --%s\n        %s\n", flag, help) }
	line("config-file FILE", "configuration file to read; may be repeated")
	line("config-dir DIR", "folder whose *.conf files are read; may be repeated")
	for _, o := range options() {
		if o.group != defaultGroup {
			continue
		}
		flag, help := strings.ReplaceAll(o.name, "_", "-"), o.help
		if o.kind != "boolean" {
			flag += " " + strings.ToUpper(o.kind)
		}
		if o.def != "" && o.def != "false" {
			help += " (default " + o.def
			if o.unit != "" {
				help += " " + o.unit
			}
			help += ")"
		}
		line(flag, help)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// typeText describes the values an option takes.
func (o option) typeText() string {
	text := o.kind
	if len(o.choices) > 0 {
		text = strings.Join(o.choices, " or ")
	}
	if o.unit != "" {
		text += ", " + o.unit
	}
	switch {
	case o.min != nil && o.max != nil:
		text += fmt.Sprintf(", %d to %d", *o.min, *o.max)
	case o.min != nil:
		text += fmt.Sprintf(", ≥ %d", *o.min)
	}
	return text
}

func (o option) defaultText() string {
	switch {
	case o.def != "":
		return "`" + o.def + "`"
	case o.kind == "boolean":
		return "`false`"
	case o.kind == "list" || o.kind == "map":
		return "empty"
	}
	return "none"
}
