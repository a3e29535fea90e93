package screen

import (
	"io"
	"strconv"
	"strings"
)

// Painter brings frames to a terminal. It writes only the rows that differ from those of the frame before.
type Painter struct {
	w    io.Writer
	last []string // rows as they were written; nil = the terminal's content is not known
	size [2]int
}

// NewPainter returns a painter for a terminal whose content is not known.
func NewPainter(w io.Writer) *Painter { return &Painter{w: w} }

// Forget makes the next frame be written as a whole: something else was written to the terminal.
func (p *Painter) Forget() { p.last = nil }

// Paint shows a frame. The error is that of the terminal.
func (p *Painter) Paint(f Frame) error {
	var out strings.Builder
	if size := [2]int{f.width, f.height}; size != p.size || p.last == nil {
		p.size, p.last = size, nil
		out.WriteString("\x1b[?25l\x1b[0m\x1b[H\x1b[2J") // no cursor, no colours, from the top, on an empty screen
	}
	rows := make([]string, f.height)
	for i := range rows {
		if i < len(f.rows) {
			rows[i] = encode(f.rows[i])
		}
		if p.last == nil && rows[i] == "" || p.last != nil && p.last[i] == rows[i] {
			continue
		}
		out.WriteString("\x1b[" + strconv.Itoa(i+1) + ";1H\x1b[0m\x1b[K" + rows[i])
	}
	p.last = rows
	if out.Len() == 0 {
		return nil
	}
	out.WriteString("\x1b[0m\x1b[" + strconv.Itoa(f.height) + ";1H")
	_, err := io.WriteString(p.w, out.String())
	if err != nil {
		p.last = nil
	}
	return err
}

// Release gives the terminal back to whoever writes plain lines: below the picture, with a cursor.
func (p *Painter) Release() error {
	p.last = nil
	_, err := io.WriteString(p.w, "\x1b[0m\x1b[?25h\n")
	return err
}

func encode(r row) string {
	text := ""
	for _, s := range r {
		if s.text != "" {
			text += "\x1b[" + string(s.style) + "m" + s.text
		}
	}
	return text
}
