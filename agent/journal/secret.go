package journal

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// minEncoded is the minimum length, in bytes, of secrets that are redacted within base64 data. The encoded form of a
// shorter one would match other data by chance.
const minEncoded = 8

// forms returns the forms in which a secret can occur in a text: plain, escaped for a URL with digits in upper and
// lower case, escaped by JSON and by Go, and within base64 data.
func forms(secret string) []string {
	list := []string{secret}
	for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
		list = append(list, escaped, regexp.MustCompile("%[0-9A-F]{2}").ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	list = append(list, inner(strconv.Quote(secret)), inner(strconv.QuoteToASCII(secret)))
	if escaped, err := json.Marshal(secret); err == nil { // never fails for a string
		list = append(list, inner(string(escaped)))
	}
	var plain strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(secret) == nil { // never fails for a string
		list = append(list, inner(strings.TrimSpace(plain.String())))
	}
	if len(secret) >= minEncoded {
		for offset := range 3 {
			list = append(list, encoded(base64.RawStdEncoding, secret, offset),
				encoded(base64.RawURLEncoding, secret, offset))
		}
	}
	return list
}

// inner returns a quoted text without its quotes.
func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

// encoded returns the characters of base64 data that depend only on the secret, which begins offset bytes after a
// multiple of three.
func encoded(encoding *base64.Encoding, secret string, offset int) string {
	text := encoding.EncodeToString(append(make([]byte, offset), secret...))
	return text[(offset*8+5)/6 : (offset+len(secret))*8/6]
}
