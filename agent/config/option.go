package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// option describes an option as the tags of its field declare it.
type option struct {
	group    string // "DEFAULT", "disk_utils" ...
	name     string // as files spell it
	kernel   string // kernel parameter, "" without one
	aliases  []string
	kind     string // string, boolean, integer, float, port, list, map
	unit     string // "s", "MiB", "" without one
	def      string // default as an operator would write it
	min, max *int64
	choices  []string
	check    string
	secret   bool
	flagOnly bool
	unused   string // why the option has no effect; "" if it has one
	heading  string
	help     string
	index    []int // of the field in Config
}

// defaultGroup is the group of Config's own fields.
const defaultGroup = "DEFAULT"

// options lists all options in the order of their declaration.
func options() []option {
	var list []option
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		field := t.Field(i)
		if group := field.Tag.Get("group"); group != "" {
			for j := range field.Type.NumField() {
				o := newOption(group, field.Type.Field(j), i, j)
				o.unused = cmp.Or(o.unused, field.Tag.Get("unused"))
				list = append(list, o)
			}
		} else if field.Tag.Get("file") != "" {
			o := newOption(defaultGroup, field, i)
			if o.heading == "" {
				o.heading = list[len(list)-1].heading // the first option has one
			}
			list = append(list, o)
		}
	}
	return list
}

func newOption(group string, field reflect.StructField, index ...int) option {
	tag := field.Tag
	o := option{
		group: group, name: tag.Get("file"), kernel: tag.Get("kernel"), kind: tag.Get("type"), unit: tag.Get("unit"),
		def: tag.Get("default"), check: tag.Get("check"), secret: tag.Get("secret") != "",
		unused: tag.Get("unused"), heading: tag.Get("heading"),
		flagOnly: tag.Get("source") == "flag", help: tag.Get("help"), index: index,
		aliases: splitList(tag.Get("alias")), choices: splitList(tag.Get("choices")),
		min: bound(tag.Get("min")), max: bound(tag.Get("max")),
	}
	if o.kind == "" {
		o.kind = map[reflect.Kind]string{
			reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer",
			reflect.Slice: "list", reflect.Map: "map",
		}[field.Type.Kind()]
	}
	return o
}

// bound reads a limit of a tag, nil without one.
func bound(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// fullName returns the option's name with its group, "mdns.use_mdns", and without one in the default group.
func (o option) fullName() string {
	if o.group == defaultGroup {
		return o.name
	}
	return o.group + "." + o.name
}

// matches reports whether group and name, as an operator wrote them, are those of the option. A dash equals an
// underscore.
func (o option) matches(group, name string) bool {
	name = underscores(name)
	if group == o.group && name == underscores(o.name) {
		return true
	}
	for _, alias := range o.aliases {
		if alias == group+"."+name {
			return true
		}
	}
	return false
}

func underscores(name string) string { return strings.ReplaceAll(name, "-", "_") }

// envNames returns the names of the environment variables that set the option.
func (o option) envNames() []string {
	names := []string{"OS_" + strings.ToUpper(o.group+"__"+underscores(o.name))}
	for _, alias := range o.aliases {
		names = append(names, "OS_"+strings.ToUpper(strings.Replace(alias, ".", "__", 1)))
	}
	return names
}

// set puts an operator's text into the option's field of c. The error says what was got and what is wanted, yet not
// for which option.
func (o option) set(c *Config, text string) error {
	field := reflect.ValueOf(c).Elem().FieldByIndex(o.index)
	switch o.kind {
	case "boolean":
		value, err := parseBool(text)
		if err != nil {
			return err
		}
		field.SetBool(value)
	case "integer", "port":
		value, err := o.parseInt(text)
		if err != nil {
			return err
		}
		field.SetInt(value)
	case "float":
		seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(seconds > -maxSeconds && seconds < maxSeconds) {
			return fmt.Errorf("got %q, want a number of seconds", text)
		}
		field.SetInt(int64(seconds * float64(time.Second)))
	case "list":
		field.Set(reflect.ValueOf(splitList(text)))
	case "map":
		value, err := parseMap(text)
		if err != nil {
			return err
		}
		field.Set(reflect.ValueOf(value))
	default:
		if err := o.checkString(text); err != nil {
			return err
		}
		field.SetString(text)
	}
	return nil
}

// maxSeconds keeps durations within what time.Duration can hold.
const maxSeconds = 1 << 33

// parseInt returns the number in bytes or nanoseconds where the option has such a unit.
func (o option) parseInt(text string) (int64, error) {
	low, high := int64(-maxSeconds), int64(maxSeconds)
	want := "a number"
	if o.kind == "port" {
		low, high = 0, 65535
		want = "a port from 0 to 65535"
	}
	if o.min != nil {
		low = *o.min
		want = fmt.Sprintf("a number of at least %d", low)
	}
	if o.max != nil {
		high = *o.max
		want = fmt.Sprintf("a number from %d to %d", low, high)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("got %q, want %s", text, want)
	}
	switch o.unit {
	case "s":
		n *= int64(time.Second)
	case "MiB":
		n <<= 20
	}
	return n, nil
}

// parseBool reads the spellings of booleans that OpenStack knows.
func parseBool(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, nil
	case "0", "f", "false", "off", "n", "no":
		return false, nil
	}
	return false, fmt.Errorf("got %q, want a boolean (true or false)", text)
}

// splitList splits at commas and drops white space and empty items.
func splitList(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// parseMap parses "key:value,key:value".
func parseMap(text string) (map[string]string, error) {
	m := map[string]string{}
	for _, item := range splitList(text) {
		key, value, ok := strings.Cut(item, ":")
		if !ok || key == "" {
			return nil, fmt.Errorf("got %q, want key:value pairs separated by commas", text)
		}
		m[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return m, nil
}
