// Package fault defines the errors of the agent's REST API: the body of an HTTP error response and the command_error of
// a command. Type names, codes and messages are ironic-python-agent's, because Ironic's conductor and operators' tools
// match them. Details are the agent's own.
//
// From turns any other error into a CommandExecutionError.
package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Error is an error of the protocol.
type Error struct {
	Type    string // the class name that clients match, for example "ImageChecksumError"
	Code    int    // HTTP status of the response; 500 and above are errors of the agent
	Message string // the fixed text of the type
	Details string // the object and the cause; clients show it first
	Err     error  // the cause, for errors.Is and errors.As; can be nil
}

// Error returns message and details in the form of the HTTP faultstring.
func (e *Error) Error() string {
	if e.Details == "" || e.Details == e.Message {
		return e.Message
	}
	return e.Message + ": " + e.Details
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MarshalJSON encodes the object of command_error.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type    string `json:"type"`
		Code    int    `json:"code"`
		Message string `json:"message"`
		Details string `json:"details"`
	}{e.Type, e.Code, e.Message, e.Details})
}

// From converts err to an Error: the Error in its chain, with the text that precedes it prepended to the details, or
// otherwise a CommandExecutionError. It returns nil for nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var fault *Error
	if !errors.As(err, &fault) {
		return CommandExecution(err)
	}
	if before, ok := strings.CutSuffix(err.Error(), fault.Error()); ok && before != "" {
		return &Error{
			Type: fault.Type, Code: fault.Code, Message: fault.Message, Details: before + fault.Details, Err: err,
		}
	}
	return fault
}

// IsInvalidContent reports whether err means that the request is invalid: the response has status 400, and there is no
// command record.
func IsInvalidContent(err error) bool {
	var fault *Error
	if !errors.As(err, &fault) {
		return false
	}
	switch fault.Type {
	case "InvalidCommandError", "InvalidCommandParamsError":
		return true
	}
	return false
}

// IsVersionMismatch reports whether err is a VersionMismatch, which has its own command status.
func IsVersionMismatch(err error) bool {
	var fault *Error
	return errors.As(err, &fault) && fault.Type == "VersionMismatch"
}

// wrap returns an Error whose details are formatted by fmt.Errorf, so that %w keeps the cause.
func wrap(name string, code int, message, format string, args []any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Type: name, Code: code, Message: message, Details: err.Error(), Err: err}
}
