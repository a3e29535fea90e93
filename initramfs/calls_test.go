package initramfs

import (
	"io"
	"io/fs"
	"strings"
	"testing"
)

// Only managers of the image may make further system calls, and only such that exist.
func TestManagerCalls(t *testing.T) {
	files := []imageFile{
		{path: managersDir + "/firmware", mode: 0o755},
		{path: managersDir, mode: 0o755 | fs.ModeDir},
		{path: "usr/bin/tool", mode: 0o755},
	}
	for name, tt := range map[string]struct {
		calls map[string][]string
		want  string // the file, or the start of the error
	}{
		"none":      {nil, ""},
		"two":       {map[string][]string{"firmware": {"bpf", "acct"}}, `{"firmware":["bpf","acct"]}`},
		"other":     {map[string][]string{"tool": {"bpf"}}, `system calls of manager "tool": the image has the managers`},
		"unknown":   {map[string][]string{"firmware": {"raed"}}, `system calls of manager "firmware": system call "raed" is`},
		"permitted": {map[string][]string{"firmware": {"ioctl"}}, `system calls of manager "firmware": every program may`},
	} {
		b := &builder{Options: Options{ManagerCalls: tt.calls, Progress: io.Discard}}
		b.noteManagers(files)
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
