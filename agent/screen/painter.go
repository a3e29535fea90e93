package screen

import (
	"io"
	"strconv"
	"strings"
)

// Painter writes frames to a terminal. It writes only the rows that differ from the previous frame.
type Painter struct {
	w    io.Writer
	last []string // rows last written; nil if the terminal's content is unknown
	size [2]int
}

// NewPainter returns a painter for a terminal with unknown content.
func NewPainter(w io.Writer) *Painter { return &Painter{w: w} }

// Forget makes Paint write the next frame completely. Call it after other output to the terminal.
func (p *Painter) Forget() { p.last = nil }

// Paint writes a frame. It returns the error of the terminal.
func (p *Painter) Paint(f Frame) error {
	var out strings.Builder
	if size := [2]int{f.width, f.height}; size != p.size || p.last == nil {
		p.size, p.last = size, nil
		out.WriteString("\x1b[?25l\x1b[0m\x1b[H\x1b[2J") // hide the cursor, reset colours, clear the screen
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

// Release prepares the terminal for plain lines: it shows the cursor below the frame.
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
