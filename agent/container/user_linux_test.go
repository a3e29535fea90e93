package container

import (
	"bufio"
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// FuzzFindLine searches the user database of an image. The first line for the name or the number is found.
func FuzzFindLine(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:100::/:/bin/sh\n"), "user", false)
	f.Add([]byte("root:x:0:0\r\n:x:7:7\nuser"), "7", true)
	f.Add([]byte("user:x\n"), "user", true)
	f.Fuzz(func(t *testing.T, database []byte, name string, number bool) {
		fields, err := findLine(bytes.NewReader(database), name, number)
		if err != nil {
			if fields != nil || !errors.Is(err, bufio.ErrTooLong) {
				t.Errorf("got %q and %v", fields, err)
			}
			return
		}
		var want []string
		for line := range strings.Lines(string(database)) {
			line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
			all := strings.Split(line, ":")
			if all[0] == name || number && len(all) > 2 && all[2] == name {
				want = all
				break
			}
		}
		if !slices.Equal(fields, want) {
			t.Errorf("got %q for %q, want %q", fields, name, want)
		}
	})
}
