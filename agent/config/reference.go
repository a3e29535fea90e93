package config

import (
	"fmt"
	"io"
	"strings"
)

// introduction is the text before the tables of the reference.
const introduction = `# Configuration of the agent

` + "`make docs`" + ` generates this file from the declarations in agent/config. Manual changes are lost.

Names, kernel parameters, defaults and precedence are ironic-python-agent's. From the highest to the lowest:

1. values in the conductor's answer to the lookup, and the kernel parameter ` + "`ipa-debug`" + `,
2. command line flags of ` + "`ironroot agent`" + `: every option of [DEFAULT], spelled with _ or with -,
3. the environment: ` + "`OS_<GROUP>__<OPTION>`" + `, for example ` + "`OS_DEFAULT__API_URL`" + `,
4. configuration files, where the last one wins: ` + "`" + DefaultFile + "`" + ` (outside the ramdisk),
   then ` + "`*.conf`" + ` in ` + "`" + DefaultDir + "`" + ` in alphabetical order,
5. kernel parameters (in the ramdisk),
6. the built-in default.

An option whose value is of the wrong type or out of range is an error at start that names the option, the value and
its source. Times are in seconds and sizes in MiB, as the type says. Options with "no effect" are accepted so that
existing configurations work. Another value than the default logs a warning. The kernel parameters ` + "`sshkey`" + `
and ` + "`rootpwd`" + ` are no options: [rescue.md](rescue.md#logins-of-operators) describes them.

Under Secure Boot, a [unified kernel image](uki.md#what-other-sources-can-set) accepts kernel parameters from itself
only, and from virtual media and multicast DNS only the options of the
[last section](#options-that-unsigned-sources-can-set).
`

// unsignedIntroduction is the text before the last tables.
const unsignedIntroduction = `
## Options that unsigned sources can set

In a [signed image](uki.md#what-other-sources-can-set), these options can be set by virtual media, and by answers of
multicast DNS if ` + "`allowed_overrides`" + ` contains them, unless the image sets them itself. All others
are ignored. Of kernel parameters without an option, virtual media can set the ones with "yes" in the second table.

| Option | Virtual media | Multicast DNS |
|---|---|---|
`

// Reference writes the reference of all options as Markdown, a table per group.
func Reference(w io.Writer) error {
	var text strings.Builder
	text.WriteString(introduction)
	group := ""
	for _, o := range options() {
		if o.group != group {
			group = o.group
			fmt.Fprintf(&text, "\n## [%s]\n\n", group)
			text.WriteString("| Option | Kernel parameter | Type | Default | Meaning |\n|---|---|---|---|---|\n")
		}
		kernel := "–"
		if o.kernel != "" {
			kernel = "`" + o.kernel + "`"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n",
			o.name, kernel, o.typeText(), o.defaultText(), o.meaning())
	}
	text.WriteString(unsignedIntroduction)
	for _, o := range options() {
		if len(o.unsigned) > 0 {
			fmt.Fprintf(&text, "| `%s` | %s | %s |\n",
				o.fullName(), yes(o.opensTo(FromMedia)), yes(o.opensTo(FromMDNS)))
		}
	}
	text.WriteString("\n| Kernel parameter without an option | Virtual media |\n|---|---|\n")
	for _, name := range mediaParams {
		fmt.Fprintf(&text, "| `%s` | yes |\n", name)
	}
	for _, name := range closedParams {
		fmt.Fprintf(&text, "| `%s` | – |\n", name)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "–"
}

// firstHeading is the first heading of the command's help.
const firstHeading = "General"

// Usage writes all flags with their types and defaults under their headings, for the command's help.
func Usage(w io.Writer) error {
	headings := []string{firstHeading}
	sections := map[string]*strings.Builder{firstHeading: {}}
	writeFlag(sections[firstHeading], "config-file FILE", "configuration file to read; can be repeated")
	writeFlag(sections[firstHeading], "config-dir DIR", "directory whose *.conf files are read; can be repeated")
	for _, o := range options() {
		if o.group != defaultGroup {
			continue
		}
		if sections[o.heading] == nil {
			headings = append(headings, o.heading)
			sections[o.heading] = &strings.Builder{}
		}
		writeFlag(sections[o.heading], o.flagText(), o.meaning()+o.flagDefault())
	}
	for _, heading := range headings {
		if _, err := fmt.Fprintf(w, "%s:\n%s\n", heading, sections[heading]); err != nil {
			return err
		}
	}
	return nil
}

func writeFlag(section *strings.Builder, flag, help string) {
	fmt.Fprintf(section, "  --%s\n        %s\n", flag, help)
}

// flagText returns the flag and the placeholder of its value. Booleans have no value.
func (o option) flagText() string {
	flag := strings.ReplaceAll(o.name, "_", "-")
	switch {
	case o.kind == "boolean":
		return flag
	case len(o.choices) > 0:
		return flag + " " + strings.Join(o.choices, "|")
	}
	return flag + " " + strings.ToUpper(o.kind)
}

func (o option) flagDefault() string {
	if o.def == "" || o.def == "false" {
		return ""
	}
	return " (default " + strings.TrimSpace(o.def+" "+o.unit) + ")"
}

// meaning returns the help, with the reason if the option has no effect.
func (o option) meaning() string {
	if o.unused != "" {
		return o.help + "; no effect: " + o.unused
	}
	return o.help
}

// typeText describes the values that an option accepts.
func (o option) typeText() string {
	text := o.kind
	if len(o.choices) > 0 {
		text = strings.Join(o.choices, " or ")
	}
	if o.unit != "" {
		text += ", " + o.unit
	}
	switch {
	case o.kind == "port":
		// The type implies the bounds.
	case o.min != "" && o.max != "":
		text += ", " + o.min + " to " + o.max
	case o.min != "":
		text += ", ≥ " + o.min
	case o.max != "":
		text += ", ≤ " + o.max
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
