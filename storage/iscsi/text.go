package iscsi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// pair is a key with its value (RFC 7143, 6.1).
type pair struct{ key, value string }

// encodeText returns the text of a request.
func encodeText(pairs []pair) []byte {
	var b bytes.Buffer
	for _, p := range pairs {
		b.WriteString(p.key + "=" + p.value + "\x00")
	}
	return b.Bytes()
}

const (
	maxKey   = 63  // bytes of a key (RFC 7143, 6.1)
	maxPairs = 128 // keys of a response
)

// parseText parses the text of a response. A key occurs once.
func parseText(data []byte) (map[string]string, error) {
	pairs := map[string]string{}
	for part := range bytes.SplitSeq(data, []byte{0}) {
		if len(part) == 0 {
			continue // after the last pair, and padding
		}
		key, value, found := strings.Cut(string(part), "=")
		if !found || key == "" || len(key) > maxKey {
			return nil, errors.New("text is no list of keys with values")
		}
		if _, twice := pairs[key]; twice {
			return nil, fmt.Errorf("key %q occurs twice", key)
		}
		if pairs[key] = value; len(pairs) > maxPairs {
			return nil, fmt.Errorf("more than %d keys", maxPairs)
		}
	}
	return pairs, nil
}

// number parses a number of a response.
func number(pairs map[string]string, key string, missing, least, most int) (int, error) {
	text, found := pairs[key]
	if !found {
		return missing, nil
	}
	n, err := strconv.ParseInt(text, 0, 32) // decimal or 0x
	if err != nil || int(n) < least || int(n) > most {
		return 0, fmt.Errorf("got %s=%.40q, want %d to %d", key, text, least, most)
	}
	return int(n), nil
}

// boolean parses a boolean of a response.
func boolean(pairs map[string]string, key string, missing bool) (bool, error) {
	switch text, found := pairs[key]; {
	case !found:
		return missing, nil
	case text == "Yes":
		return true, nil
	case text == "No":
		return false, nil
	default:
		return false, fmt.Errorf("got %s=%.40q, want Yes or No", key, text)
	}
}
