package inject

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// expandFields replaces the fields of a text by values, in the syntax of Python's str.format that operators know from
// ironic-python-agent: {node[uuid]}, {ports[0][address]}, {{ and }} for braces. Conversions, format specifications and
// attributes are errors.
func expandFields(text string, values map[string]any) (string, error) {
	var out strings.Builder
	for text != "" {
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			at = len(text)
		}
		out.WriteString(text[:at])
		text = text[at:]
		switch {
		case text == "":
		case strings.HasPrefix(text, "{{"), strings.HasPrefix(text, "}}"):
			out.WriteByte(text[0])
			text = text[2:]
		default:
			field, rest, closed := strings.Cut(text[1:], "}")
			if text[0] == '}' || !closed {
				return "", fmt.Errorf("unpaired brace in a URL: write {{ or }} for a single one")
			}
			value, err := fieldValue(field, values)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			text = rest
		}
	}
	return out.String(), nil
}

// fieldValue returns the text of a field such as node[properties][cpu_arch].
func fieldValue(field string, values map[string]any) (string, error) {
	name, keys, _ := strings.Cut(field, "[")
	value, known := values[name]
	if !known {
		return "", fmt.Errorf("field {%s} of a URL: got the name %q, want node or ports", field, name)
	}
	if keys != "" || strings.HasSuffix(field, "[") {
		inner, closed := strings.CutSuffix(keys, "]")
		if !closed {
			return "", fmt.Errorf("field {%s} of a URL: it does not end with ]", field)
		}
		for key := range strings.SplitSeq(inner, "][") {
			if value, known = element(value, key); !known {
				return "", fmt.Errorf("field {%s} of a URL: there is no element %q", field, key)
			}
		}
	}
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return map[bool]string{true: "True", false: "False"}[value], nil
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
			return strconv.FormatInt(int64(value), 10), nil
		}
		return strconv.FormatFloat(value, 'g', -1, 64), nil
	}
	return "", fmt.Errorf("field {%s} of a URL: it is neither a text nor a number", field)
}

// element returns an element of an object or list.
func element(of any, key string) (value any, known bool) {
	switch of := of.(type) {
	case map[string]any:
		value, known = of[key]
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(of) {
			return of[i], true
		}
	}
	return value, known
}
