//go:build linux

package boot

import (
	"bytes"
	"io"
)

// unquoted forwards the lines of package log. It shortens those in which net/http quotes data that a server sent
// after its response, because fetched content must not appear in a log.
type unquoted struct{ w io.Writer }

// unsolicited is the beginning of such a line (net/http, Transport).
const unsolicited = "Unsolicited response received on idle HTTP channel"

func (u unquoted) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte(unsolicited)) {
		return u.w.Write(line)
	}
	if _, err := io.WriteString(u.w, unsolicited+"\n"); err != nil {
		return 0, err
	}
	return len(line), nil
}
