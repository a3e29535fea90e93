package command

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"ironroot/agent/fault"
)

// Status is the state of a command.
type Status string

// The states of a command. VersionMismatch has this text for deploy and service steps, too.
const (
	Running         Status = "RUNNING"
	Succeeded       Status = "SUCCEEDED"
	Failed          Status = "FAILED"
	VersionMismatch Status = "CLEAN_VERSION_MISMATCH"
)

// Record is a command that was started, as the REST API returns it. It omits the parameters, which can contain secrets.
type Record struct {
	ID     string          `json:"id"`
	Name   string          `json:"command_name"` // without the extension, except for synchronous commands that failed
	Status Status          `json:"command_status"`
	Error  *fault.Error    `json:"command_error"`
	Result json.RawMessage `json:"command_result"` // null until there is one
}

// finish stores the result or the error of a command in its record.
func (r *Record) finish(result any, wrap func(string) any, err error) {
	if err == nil {
		r.Result, err = encode(result, wrap)
	}
	switch {
	case err == nil:
		r.Status = Succeeded
	case fault.IsVersionMismatch(err):
		r.Status, r.Error = VersionMismatch, fault.From(err)
	default:
		r.Status, r.Error = Failed, fault.From(err)
	}
}

const (
	// largeResult is the size in bytes from which only the latest result is kept.
	largeResult = 64 << 10
	// maxRecords is the number of records that are kept. Ironic looks for the latest command, for the latest one of a
	// name, and whether the list has only commands that list steps.
	maxRecords = 1000
	// maxResults limits the total size of all results, in bytes. The latest results are kept.
	maxResults = 4 << 20
)

// dropResult replaces the result of a record by a note with its size.
func (r *Record) dropResult() {
	r.Result = json.RawMessage(fmt.Sprintf(`{"note":"result of %d bytes dropped to limit memory"}`, len(r.Result)))
}

// limitResults replaces results that are too large to keep: results of largeResult or more, except for the latest of
// them, and results beyond maxResults in total, counted from the latest record. It never replaces the result of the
// latest record, which Ironic reads; of earlier records Ironic reads only name and state.
func limitResults(entries []*entry) {
	var total int
	large := false
	for i := len(entries) - 1; i >= 0; i-- {
		record := &entries[i].record
		size := len(record.Result)
		isLarge := size >= largeResult
		if i < len(entries)-1 && (isLarge && large || total+size > maxResults) {
			if size > maxNote {
				record.dropResult()
			}
			size = len(record.Result)
		}
		large = large || isLarge
		total += size
	}
}

// maxNote is the maximum size in bytes of the note that replaces a result.
const maxNote = 128

// encode encodes the result when the command ends, so that later changes of the value have no effect.
func encode(result any, wrap func(string) any) (json.RawMessage, error) {
	switch text := result.(type) {
	case string:
		result = wrap(text)
	case []byte:
		result = wrap(string(text))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		return nil, fmt.Errorf("encode command result as JSON: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// newID returns a random UUID (version 4).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // crypto/rand.Read does not fail since Go 1.24
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
