package qemu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"os"
	"strings"
)

// VGA text mode: pairs of character and attribute in a window of the guest's memory.
const (
	textMemory = 0xb8000
	textWindow = 32 << 10
	textWidth  = 80
)

// TextScreen returns the text of the machine's screen in VGA text mode, which BIOS machines use: all lines of the
// window that the console scrolls through, without trailing spaces.
func (m *Machine) TextScreen(ctx context.Context) (string, error) {
	path := m.path("screen.mem")
	if _, err := m.QMP(ctx, "pmemsave",
		map[string]any{"val": textMemory, "size": textWindow, "filename": path}); err != nil {
		return "", err
	}
	memory, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: text screen: %w", m.config.Name, err)
	}
	var text strings.Builder
	for row := 0; row+2*textWidth <= len(memory); row += 2 * textWidth {
		line := make([]byte, textWidth)
		for i := range line {
			if line[i] = memory[row+2*i]; line[i] == 0 {
				line[i] = ' '
			}
		}
		text.Write(bytes.TrimRight(line, " "))
		text.WriteByte('\n')
	}
	return text.String(), nil
}

// Screenshot returns the content of the machine's screen.
func (m *Machine) Screenshot(ctx context.Context) (image.Image, error) {
	path := m.path("screen.ppm")
	if _, err := m.QMP(ctx, "screendump", map[string]any{"filename": path}); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: screenshot: %w", m.config.Name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	picture, err := readPPM(f)
	if err != nil {
		return nil, fmt.Errorf("%s: screenshot: %w", m.config.Name, err)
	}
	return picture, nil
}

// readPPM decodes a portable pixmap in the only form that QEMU writes (ppm(5): P6 with one byte per sample). The
// image has a palette if 256 colours suffice, as in text mode.
func readPPM(r io.Reader) (image.Image, error) {
	in := bufio.NewReader(r)
	var width, height, most int
	if _, err := fmt.Fscanf(in, "P6\n%d %d\n%d\n", &width, &height, &most); err != nil {
		return nil, fmt.Errorf("header of a portable pixmap: %w", err)
	}
	if width <= 0 || height <= 0 || width > 1<<14 || height > 1<<14 || most != 255 {
		return nil, errors.New("not a portable pixmap as QEMU writes it")
	}
	pixels := make([]byte, 3*width*height)
	if _, err := io.ReadFull(in, pixels); err != nil {
		return nil, fmt.Errorf("pixels of a portable pixmap: %w", err)
	}
	frame := image.Rect(0, 0, width, height)
	full, small := image.NewRGBA(frame), image.NewPaletted(frame, nil)
	known := map[color.RGBA]uint8{}
	for i := range width * height {
		c := color.RGBA{pixels[3*i], pixels[3*i+1], pixels[3*i+2], 255}
		full.SetRGBA(i%width, i/width, c)
		index, found := known[c]
		if !found && len(known) < 256 {
			index = uint8(len(known))
			known[c] = index
			small.Palette = append(small.Palette, c)
		} else if !found {
			small = nil
		}
		if small == nil {
			known = nil
			continue
		}
		small.Pix[i] = index
	}
	if small != nil {
		return small, nil
	}
	return full, nil
}
