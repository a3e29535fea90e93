package initramfs

import (
	"io"
	"path"
	"strings"
	"testing"

	"ironroot/agent/hardware/external"
)

// System calls are accepted for managers of the image whose name is unique, and only if they exist and are not
// permitted anyway. The agent looks for the file at this path.
func TestManagerCalls(t *testing.T) {
	if want := path.Join(path.Dir(external.Dir), external.CallsName); "/"+managerCallsFile != want {
		t.Errorf("got the file /%s, want %s", managerCallsFile, want)
	}
	const prefix = `system calls of manager "`
	for name, tt := range map[string]struct {
		calls map[string][]string
		want  string // the file, or the start of the error
	}{
		"none":      {nil, ""},
		"two":       {map[string][]string{"firmware": {"bpf", "acct"}}, `{"firmware":["bpf","acct"]}`},
		"other":     {map[string][]string{"tool": {"bpf"}}, prefix + `tool": got 0 managers of that name, want 1 of`},
		"ambiguous": {map[string][]string{"twice": {"bpf"}}, prefix + `twice": got 2 managers of that name, want 1 of`},
		"unknown":   {map[string][]string{"firmware": {"raed"}}, prefix + `firmware": system call "raed" is`},
		"permitted": {map[string][]string{"firmware": {"ioctl"}}, prefix + `firmware": every program may`},
	} {
		b := &builder{
			Options:  Options{ManagerCalls: tt.calls, Progress: io.Discard},
			managers: []string{"firmware", "twice", "twice"},
		}
		records, err := b.managerCalls()
		got := ""
		if err != nil {
			got = err.Error()
		} else if len(records) == 1 {
			content, err := io.ReadAll(io.NewSectionReader(records[0], 0, int64(records[0].FileSize)))
			if err != nil {
				t.Fatal(err)
			}
			got = string(content)
		}
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
