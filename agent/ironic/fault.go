package ironic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
)

// StatusError is a response of Ironic without success.
type StatusError struct {
	Status int
	Text   string // Ironic's error text, one line
}

func (e *StatusError) Error() string { return fmt.Sprintf("Error %d: %s", e.Status, e.Text) }

// TokenRefused reports whether err is Ironic's answer to a heartbeat whose token it does not know: it has forgotten the
// token, or issued another one. All releases that know tokens have this text.
func TokenRefused(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Status == http.StatusBadRequest &&
		strings.Contains(status.Text, "missing agent token")
}

// maxFaultLength limits Ironic's text in an error, in characters.
const maxFaultLength = 500

// statusError returns a response as an error. Ironic's current form is {"error_message": {"faultstring": ...}}. Older
// versions encode that object as a JSON string, some proxies and WSGI servers send "title", and any other body is
// quoted unchanged. Ironic can quote the request, so the token is masked. An unexpected success can contain a token
// that is not known yet, so it is not quoted.
func (c *Client) statusError(a answer) *StatusError {
	if a.status < http.StatusMultipleChoices {
		return &StatusError{Status: a.status, Text: "unexpected success status"}
	}
	text := faultText(a.body)
	if secret := c.token.Reveal(); secret != "" {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return &StatusError{Status: a.status, Text: oneLine(text)}
}

func faultText(body []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return string(body)
	}
	if message, ok := fields["error_message"]; ok {
		var packed string
		if json.Unmarshal(message, &packed) == nil {
			message = []byte(packed)
		}
		fields = nil
		if json.Unmarshal(message, &fields) != nil && packed != "" {
			return packed
		}
	}
	for _, name := range []string{"faultstring", "title"} {
		var text string
		if json.Unmarshal(fields[name], &text) == nil && text != "" {
			return text
		}
	}
	return string(body)
}

// oneLine converts foreign text to one line without control characters and limits its length.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > maxFaultLength {
		text = string(runes[:maxFaultLength]) + "..."
	}
	return text
}
