package hint

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// expression is an operator with its values, lower-cased and trimmed.
type expression struct {
	op     string
	values []string
}

func (e expression) String() string {
	if e.op == "<or>" {
		return "<or> " + strings.Join(e.values, " <or> ")
	}
	return e.op + " " + e.values[0]
}

// operators are tried in this order, so that none hides a longer one.
var operators = []string{
	"<or>", "<all-in>", "<range-in>",
	"==", "=", "!=", "<in>", ">=", "<=", ">", "<", "s==", "s!=", "s<=", "s<", "s>=", "s>",
}

// split splits an expression into operator and values, lower-cased and trimmed. The operator is "" if there is none.
func split(text string) (op string, values []string, err error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return "", nil, errors.New("is an empty expression")
	}
	index := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(text, op) })
	if index < 0 {
		return "", []string{text}, nil
	}
	op = operators[index]
	if op == "<all-in>" || op == "<range-in>" {
		return "", nil, fmt.Errorf("uses the operator %s, which no hint on disks supports", op)
	}
	for _, value := range strings.Split(strings.TrimSuffix(text[len(op):], op), op) {
		value = strings.TrimSpace(value)
		if value == "" {
			return "", nil, fmt.Errorf("has no value after %s", op)
		}
		values = append(values, value)
	}
	if op != "<or>" {
		values = values[:1] // as in oslo.utils, a second operator and its values are ignored
	}
	return op, values, nil
}

func parseText(text string) (expression, error) {
	op, values, err := split(text)
	if err != nil {
		return expression{}, err
	}
	if op == "" {
		op = "s=="
	}
	return expression{op, values}, nil
}

func parseSize(text string) (expression, error) {
	op, values, err := split(text)
	if err != nil {
		return expression{}, err
	}
	for _, value := range values {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return expression{}, fmt.Errorf("is not an integer number of GiB: %q", text)
		}
		if n <= 0 {
			return expression{}, fmt.Errorf("is not positive: %q", text)
		}
	}
	switch op {
	case "":
		op = "=="
	case "<in>", "s<", "s<=", "s>", "s>=":
		return expression{}, fmt.Errorf("uses the operator %s, which does not compare numbers", op)
	}
	return expression{op, values}, nil
}

// matchSize compares a size in GiB. Text operators compare it as never equal, so that "<or>" and "s==" never match.
func (e expression) matchSize(gib float64) (bool, error) {
	switch e.op {
	case "<or>", "s==":
		return false, nil
	case "s!=":
		return true, nil
	}
	return compareNumbers(e.op, gib, e.values[0])
}

// matchText compares a value of a disk. Both sides are encoded for the comparison, but not in errors.
func (e expression) matchText(plain string) (bool, error) {
	value, want := encode(plain), encode(e.values[0])
	switch e.op {
	case "s==":
		return value == want, nil
	case "s!=":
		return value != want, nil
	case "s<":
		return value < want, nil
	case "s<=":
		return value <= want, nil
	case "s>":
		return value > want, nil
	case "s>=":
		return value >= want, nil
	case "<in>":
		return strings.Contains(value, want), nil
	case "<or>":
		return slices.ContainsFunc(e.values, func(other string) bool { return value == encode(other) }), nil
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return false, fmt.Errorf("operator %s needs a number, the disk has %q", e.op, plain)
	}
	if _, err := strconv.ParseFloat(want, 64); err != nil {
		return false, fmt.Errorf("operator %s needs a number, the hint has %q", e.op, e.values[0])
	}
	return compareNumbers(e.op, number, want)
}

func compareNumbers(op string, got float64, text string) (bool, error) {
	want, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false, fmt.Errorf("operator %s needs a number, the hint has %q", op, text)
	}
	switch op {
	case "=", ">=": // in specs_matcher, "=" means "at least"
		return got >= want, nil
	case "==":
		return got == want, nil
	case "!=":
		return got != want, nil
	case "<=":
		return got <= want, nil
	case ">":
		return got > want, nil
	case "<":
		return got < want, nil
	}
	return false, fmt.Errorf("unknown operator %q", op)
}

// encode lower-cases, trims and percent-encodes a value, except for letters, digits, "_.-~" and "/".
func encode(value string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(strings.TrimSpace(value))) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("_.-~/", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}
