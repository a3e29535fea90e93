package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"ironroot/internal/oslo"
)

// option describes an option as the tags of its field declare it.
type option struct {
	group    string // "DEFAULT", "disk_utils" ...
	name     string // as files spell it
	kernel   string // kernel parameter, "" without one
	aliases  []string
	kind     string // string, boolean, integer, float, port, list, map
	unit     string // "s", "MiB", "" without one
	def      string // default, as an operator writes it
	min, max string // bounds of a number, "" without one
	choices  []string
	check    string
	secret   bool
	flagOnly bool
	unsigned []Source // that can set it in a signed image
	unused   string   // why the option has no effect; "" if it has one
	heading  string
	help     string
	index    []int // of the field in Config
}

// defaultGroup is the group of Config's own fields.
const defaultGroup = "DEFAULT"

// options lists all options in the order of their declaration.
func options() []option { return declared(reflect.TypeFor[Config]()) }

// declared lists the options that the fields of a struct declare.
func declared(t reflect.Type) []option {
	var list []option
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
			if o.heading == "" && len(list) > 0 {
				o.heading = list[len(list)-1].heading
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
		min: tag.Get("min"), max: tag.Get("max"),
	}
	for _, source := range splitList(tag.Get("unsigned")) {
		if source != "none" {
			o.unsigned = append(o.unsigned, Source(source))
		}
	}
	if o.kind == "" {
		o.kind = map[reflect.Kind]string{
			reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer",
			reflect.Float64: "float", reflect.Slice: "list", reflect.Map: "map",
		}[field.Type.Kind()]
	}
	if o.kind == "port" {
		o.min, o.max = cmp.Or(o.min, "0"), cmp.Or(o.max, "65535")
	}
	return o
}

// fullName returns the option's name with its group, "mdns.use_mdns", and without one in the default group.
func (o option) fullName() string {
	if o.group == defaultGroup {
		return o.name
	}
	return o.group + "." + o.name
}

// matches reports whether group and name, as an operator wrote them, name the option. A dash equals an underscore.
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

// value returns the option's field of c.
func (o option) value(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(o.index)
}

// set parses text and stores it in the option's field of c. The error contains the text and the expected form, but
// not the option's name.
func (o option) set(c *Config, text string) error { return o.setField(o.value(c), text) }

func (o option) setField(field reflect.Value, text string) error {
	switch o.kind {
	case "boolean":
		value, ok := oslo.ParseBool(text)
		if !ok {
			return fmt.Errorf("got %q, want a boolean (true or false)", text)
		}
		field.SetBool(value)
	case "integer", "port":
		n, err := parseInteger(strings.TrimSpace(text))
		if err != nil || !o.inRange(float64(n)) {
			return fmt.Errorf("got %q, want %s", text, o.rangeText())
		}
		field.SetInt(n * o.unitSize())
	case "float":
		x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !o.inRange(x) {
			return fmt.Errorf("got %q, want %s", text, o.rangeText())
		}
		if x *= float64(o.unitSize()); field.CanFloat() {
			field.SetFloat(x)
		} else {
			field.SetInt(int64(x))
		}
	case "list":
		field.Set(reflect.ValueOf(splitList(text)))
	case "map":
		value, err := parseMap(text)
		if err != nil {
			return err
		}
		field.Set(reflect.ValueOf(value))
	default:
		value, err := o.parseString(text)
		if err != nil {
			return err
		}
		field.SetString(value)
	}
	return nil
}

// isNumber reports whether the option is a number.
func (o option) isNumber() bool { return o.kind == "integer" || o.kind == "port" || o.kind == "float" }

var separated = regexp.MustCompile(`^[+-]?[0-9]+(_[0-9]+)+$`)

// parseInteger parses a decimal number as Python does: underscores can separate digits.
func parseInteger(text string) (int64, error) {
	if separated.MatchString(text) {
		text = strings.ReplaceAll(text, "_", "")
	}
	return strconv.ParseInt(text, 10, 64)
}

// maxNumber is the largest number of an option, and the largest number of seconds or MiB that fits into 63 bits.
const maxNumber = 1 << 33

// limit parses the bound of a number. Without a bound it returns otherwise.
func limit(text string, otherwise float64) float64 {
	if text == "" {
		return otherwise
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN() // no number is in range, not even the default: TestDefaults fails and names the option
	}
	return x
}

// inRange reports whether x is within the bounds of the option.
func (o option) inRange(x float64) bool {
	return limit(o.min, -maxNumber) <= x && x <= limit(o.max, maxNumber)
}

// rangeText describes the numbers that the option accepts, for errors.
func (o option) rangeText() string {
	what := "a number"
	if o.kind == "port" {
		what = "a port"
	}
	switch {
	case o.min != "" && o.max != "":
		return what + " from " + o.min + " to " + o.max
	case o.min != "":
		return what + " of at least " + o.min
	case o.max != "":
		return what + " of at most " + o.max
	}
	return what
}

// unitSize returns the value of the unit in the unit of the field: nanoseconds or bytes.
func (o option) unitSize() int64 {
	switch o.unit {
	case "s":
		return int64(time.Second)
	case "MiB":
		return 1 << 20
	}
	return 1
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
