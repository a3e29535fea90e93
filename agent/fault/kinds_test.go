package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// Types that determine the response or the status of a command are found in a chain of errors.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		err               error
		content, mismatch bool
	}{
		{InvalidCommand("x"), true, false},
		{fmt.Errorf("flow: %w", InvalidCommandParams("x")), true, false},
		{fmt.Errorf("step: %w", VersionMismatch(nil, nil)), false, true},
		{WrongParams("x"), false, false},
		{NotFound("Extension", "x"), false, false},
		{io.EOF, false, false},
		{nil, false, false},
	} {
		if got := IsInvalidContent(c.err); got != c.content {
			t.Errorf("IsInvalidContent(%v): got %v, want %v", c.err, got, c.content)
		}
		if got := IsVersionMismatch(c.err); got != c.mismatch {
			t.Errorf("IsVersionMismatch(%v): got %v, want %v", c.err, got, c.mismatch)
		}
	}
}

// Details that repeat the message are shown once.
func TestErrorText(t *testing.T) {
	for want, err := range map[string]*Error{
		"/dev/sda holds VMFS":        ProtectedDevice("/dev/sda holds VMFS"),
		"An error occurred":          {Message: "An error occurred"},
		"An error occurred: no disk": {Message: "An error occurred", Details: "no disk"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := errors.Unwrap(&Error{Err: io.EOF}); !errors.Is(got, io.EOF) {
		t.Errorf("got cause %v, want %v", got, io.EOF)
	}
}
