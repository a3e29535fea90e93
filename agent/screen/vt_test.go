package screen

import (
	"fmt"
	"strconv"
	"strings"
)

// terminal implements the control sequences of the Linux console that a Painter uses. Others are errors.
type terminal struct {
	cells    [][]byte
	row, col int
	pending  bool // the last column was written: the next character wraps
	hidden   bool // the cursor
	err      error
}

func newTerminal(width, height int) *terminal {
	t := &terminal{}
	for range height {
		t.cells = append(t.cells, []byte(strings.Repeat(" ", width)))
	}
	return t
}

func (t *terminal) Write(p []byte) (int, error) {
	for rest := string(p); rest != ""; {
		if rest[0] != 0x1b {
			t.put(rest[0])
			rest = rest[1:]
			continue
		}
		end := strings.IndexFunc(rest[min(2, len(rest)):], func(r rune) bool { return r >= '@' && r <= '~' })
		if !strings.HasPrefix(rest, "\x1b[") || end < 0 {
			t.err = fmt.Errorf("control sequence %.10q", rest)
			return len(p), t.err
		}
		t.control(rest[2:2+end], rest[2+end])
		rest = rest[end+3:]
	}
	return len(p), t.err
}

func (t *terminal) control(parameters string, final byte) {
	numbers := []int{}
	for _, text := range strings.Split(strings.TrimPrefix(parameters, "?"), ";") {
		n, _ := strconv.Atoi(text)
		numbers = append(numbers, n)
	}
	width := len(t.cells[0])
	switch {
	case final == 'H':
		t.pending, t.row, t.col = false, max(numbers[0], 1)-1, 0
		if len(numbers) > 1 {
			t.col = max(numbers[1], 1) - 1
		}
		if t.row >= len(t.cells) || t.col >= width {
			t.err = fmt.Errorf("cursor to %s", parameters)
			t.row, t.col = 0, 0
		}
	case final == 'K' && numbers[0] == 0:
		copy(t.cells[t.row][t.col:], strings.Repeat(" ", width))
	case final == 'J' && numbers[0] == 2:
		for i := range t.cells {
			copy(t.cells[i], strings.Repeat(" ", width))
		}
	case parameters == "?25" && (final == 'l' || final == 'h'):
		t.hidden = final == 'l'
	case final == 'm': // colours are ignored
	default:
		t.err = fmt.Errorf("control sequence %q %q", parameters, final)
	}
}

func (t *terminal) put(c byte) {
	switch {
	case c == '\n': // with the line discipline's carriage return
		t.pending, t.col = false, 0
		t.down()
		return
	case c < ' ' || c > '~':
		t.err = fmt.Errorf("character %q", c)
		return
	}
	if t.pending {
		t.pending, t.col = false, 0
		t.down()
	}
	t.cells[t.row][t.col] = c
	if t.col++; t.col == len(t.cells[t.row]) {
		t.pending, t.col = true, t.col-1
	}
}

func (t *terminal) down() {
	if t.row++; t.row < len(t.cells) {
		return
	}
	t.row--
	t.cells = append(t.cells[1:], []byte(strings.Repeat(" ", len(t.cells[0]))))
}

// String returns the rows without trailing spaces, up to the last one with text.
func (t *terminal) String() string {
	var text strings.Builder
	for _, row := range t.cells {
		text.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}
