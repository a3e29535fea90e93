// Package fault holds the errors that leave the agent through its REST API: as the body of an HTTP error answer and as
// the command_error of a command. Type names, codes and messages are those of ironic-python-agent, because Ironic's
// conductor and operators' tools look at them; the details are the agent's own words.
//
// Any other error that ends a command becomes a CommandExecutionError by From.
package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Error is one failure as the protocol knows it.
type Error struct {
	Type    string // the class name a client may look for, for example "ImageChecksumError"
	Code    int    // HTTP status when the error answers a request; 500 and up is the agent's own fault
	Message string // the fixed text of the type
	Details string // what happened to what; clients show it first
	Err     error  // the cause, for errors.Is and errors.As; may be nil
}

// Error gives message and details as the HTTP faultstring shows them.
func (e *Error) Error() string {
	if e.Details == "" || e.Details == e.Message {
		return e.Message
	}
	return e.Message + ": " + e.Details
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// MarshalJSON writes the object that stands in command_error.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type    string `json:"type"`
		Code    int    `json:"code"`
		Message string `json:"message"`
		Details string `json:"details"`
	}{e.Type, e.Code, e.Message, e.Details})
}

// From gives the protocol's form of err: the Error in its chain, with the text that was put before it at the head of the
// details, or else a CommandExecutionError. nil stays nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var fault *Error
	if !errors.As(err, &fault) {
		return CommandExecution(err)
	}
	if before, ok := strings.CutSuffix(err.Error(), fault.Error()); ok && before != "" {
		return &Error{Type: fault.Type, Code: fault.Code, Message: fault.Message, Details: before + fault.Details, Err: err}
	}
	return fault
}

// IsInvalidContent reports whether err says that the request itself was wrong: such an error answers the request with
// status 400 and leaves no command record.
func IsInvalidContent(err error) bool {
	var fault *Error
	if !errors.As(err, &fault) {
		return false
	}
	switch fault.Type {
	case "InvalidContentError", "InvalidCommandError", "InvalidCommandParamsError":
		return true
	}
	return false
}

// IsVersionMismatch reports whether err is a VersionMismatch, which has a command status of its own.
func IsVersionMismatch(err error) bool {
	var fault *Error
	return errors.As(err, &fault) && fault.Type == "VersionMismatch"
}

// wrap builds an Error whose details are the text of a fmt.Errorf, so that %w keeps the cause.
func wrap(name string, code int, message, format string, args []any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Type: name, Code: code, Message: message, Details: err.Error(), Err: err}
}
