package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"testing"

	"ironroot/agent/hardware"
)

// printing is a process that was killed, but whose output is still read. It ends when the channel receives nil.
type printing struct{ ended <-chan error }

func (printing) Kill() error   { return nil }
func (p printing) Wait() error { return <-p.ended }

// printed starts a process that prints output and ends with status 0. err receives the result of printing.
func printed(t *testing.T, output []byte, err chan<- error) starter {
	t.Helper()
	pipe := func() (read, write *os.File) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return read, write
	}
	return starting(func() (*process, error) {
		unread, in := pipe()
		out, stdout := pipe()
		errorOutput, stderr := pipe()
		ended := make(chan error, 1)
		go func() {
			_, failed := stdout.Write(output)
			err <- errors.Join(failed, stdout.Close(), stderr.Close(), unread.Close())
			ended <- nil
		}()
		return &process{
			child: printing{ended}, in: in, out: out, errors: errorOutput,
		}, nil
	})
}

// typesOf returns the types of the messages in an output: one for each line that is not blank, "" for an invalid one.
// ok reports whether the output is within the limits and its last line is terminated.
func typesOf(output []byte, l limits) (types []string, ok bool) {
	list := bytes.SplitAfter(output, []byte("\n"))
	ok = len(bytes.TrimSpace(list[len(list)-1])) == 0
	total := 0
	for _, line := range list {
		ok = ok && len(line) <= l.maxMessageBytes
		if bytes.HasSuffix(line, []byte("\n")) {
			total += len(line) - 1
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var m struct {
			Type, Message string
			Percent       *float64
			Result        json.RawMessage
			Incompatible  bool
		}
		if json.Unmarshal(line, &m) != nil || m.Type == "result" && m.Result == nil {
			m.Type = ""
		}
		types = append(types, m.Type)
	}
	return types, ok && int64(total) <= l.maxOutputBytes
}

// A request succeeds if the messages are progress and then one result, as docs/manager-protocol.schema.json describes.
// Otherwise its error is the manager's own or a protocol error, of limited length. The output is always read to its
// end: an executable that cannot be aborted must not wait for its reader.
func FuzzMessages(f *testing.F) {
	const result = `{"type":"result","result":{"level":3}}` + "\n"
	for _, output := range []string{
		result, `{"type":"progress","message":"half","percent":50}` + "\n\n" + result, result + result, "",
		`{"type":"error","message":"no such drive","incompatible":true}` + "\n",
		`{"type":"result","result":null}` + "\n",
		`{"type":"error"}` + "\n" + result, result + `{"type":"progress"}` + "\n", `{"type":"result","result":1}`,
		"usage: manager\n" + result, `{"type":"progress","percent":"1"}` + "\n" + result, "null\n" + result,
	} {
		f.Add([]byte(output), true)
	}
	f.Add(append(bytes.Repeat([]byte{' '}, 2000), '\n'), false)
	f.Fuzz(func(t *testing.T, output []byte, abortable bool) {
		l := small
		l.maxMessageBytes, l.maxOutputBytes = 1<<10, 4<<10
		var tracker progress
		c := &conversation{
			limits: l, log: slog.New(slog.DiscardHandler), request: request{Method: methodRun, Protocol: 1},
			timeout: never, abortable: abortable, tracker: &tracker,
		}
		wrote := make(chan error, 1)
		got, err := c.run(t.Context(), printed(t, output, wrote))
		if err := <-wrote; err != nil {
			t.Errorf("output not read to its end: %v", err)
		}
		types, ok := typesOf(output, l)
		count := map[string]int{}
		for _, kind := range types {
			count[kind]++
		}
		ok = ok && count["result"] == 1 && types[len(types)-1] == "result" && count["progress"] == len(types)-1
		if (err == nil) != ok {
			t.Errorf("messages %q: got error %v, want success: %v", types, err, ok)
		}
		if err == nil && (!json.Valid(got) || !bytes.Contains(output, got)) {
			t.Errorf("got the result %q, want one of the output", got)
		}
		if own := (stepError{}); errors.As(err, &own) {
			if count["error"] == 0 || own.text == "" || errors.Is(err, hardware.ErrIncompatible) != own.incompatible {
				t.Errorf("messages %q: got the manager's error %v", types, err)
			}
		} else if err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("messages %q: got error %v, want a protocol error", types, err)
		}
		if len(tracker.shown) > count["progress"] {
			t.Errorf("messages %q: got progress %q", types, tracker.shown)
		}
		if err != nil && len(err.Error()) > maxErrorText+1000 {
			t.Errorf("got an error of %d bytes", len(err.Error()))
		}
	})
}
