package boot

import (
	"bytes"
	"io"
)

// unquoted passes lines of the log package on, but for those in which net/http quotes all that a server sent beyond its
// answer: what was fetched appears in no log.
type unquoted struct{ w io.Writer }

// unsolicited is how such a line begins (net/http, Transport).
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
