package container

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
)

// FuzzFindLine searches the user database of an image. A line that is found is one for the name or the number, and is
// in the database.
func FuzzFindLine(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:100::/:/bin/sh\n"), "user", false)
	f.Add([]byte("root:x:0:0\r\n:x:7:7\nuser"), "7", true)
	f.Add([]byte("user:x\n"), "user", true)
	f.Fuzz(func(t *testing.T, database []byte, name string, number bool) {
		fields, err := findLine(bytes.NewReader(database), name, number)
		switch {
		case err != nil:
			if fields != nil || !errors.Is(err, bufio.ErrTooLong) {
				t.Errorf("got %q and %v", fields, err)
			}
		case fields == nil:
			first, _, _ := strings.Cut(string(database), "\n")
			if !strings.ContainsAny(name, ":\n\r") && strings.HasPrefix(first, name+":") {
				t.Errorf("no line for %q in %q", name, database)
			}
		case fields[0] != name && (!number || len(fields) < 3 || fields[2] != name):
			t.Errorf("got %q for %q", fields, name)
		case !bytes.Contains(database, []byte(strings.Join(fields, ":"))):
			t.Errorf("got %q, which is not in the database", fields)
		}
	})
}
