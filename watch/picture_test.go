package watch

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vbauerster/mpb/v8"
)

var update = flag.Bool("update", false, "write the picture of the README")

const picture = "../docs/watch.svg"

// The picture in the README equals the output of the command on a terminal with 110 columns.
func TestPicture(t *testing.T) {
	var out bytes.Buffer
	bars := newBars(mpb.WithOutput(&out), mpb.WithAutoRefresh(), mpb.WithWidth(110))
	nodes := []Node{
		{
			Name: "rack-1", State: "clean wait", Target: "available", Step: "erase_devices",
			Progress: "erase_devices: 43%, 3 of 12 disks done, 1.2 GiB/s, 2h3m left: /dev/sdd 80%; 8 waiting",
		},
		{
			Name: "rack-2", State: "wait call-back", Target: "active", Step: "write_image",
			Progress: "write_image: 68%, writing image to /dev/sda, 112.3 MiB/s, 14s left",
		},
		{
			Name: "rack-3", State: "clean wait", Target: "manageable", Step: "burnin_memory",
			Progress: "burnin_memory: 50%, testing memory, 12h0m left",
		},
		{
			Name: "rack-4", State: "active",
			Progress: "write_image: done, image of 2.0 GiB written to /dev/sda in 43s (47.6 MiB/s)",
		},
	}
	for i := range nodes {
		nodes[i].UUID = nodes[i].Name
	}
	bars.Show(nodes)
	bars.Close()
	got := svg("$ ironroot watch rack-1 rack-2 rack-3 rack-4", lastFrame(out.String()))
	if *update {
		if err := os.WriteFile(picture, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(picture)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs, write it with: go test ./watch -run TestPicture -update\n%s", picture, got)
	}
}

// lastFrame returns the last state of the bars in the output to a terminal.
func lastFrame(output string) string {
	const clearScreen = "\x1b[J" // ends the sequence that goes back to the first line
	return output[max(0, strings.LastIndex(output, clearScreen)+len(clearScreen)):]
}

// svg returns a picture of a terminal with a command and its output.
func svg(command, output string) string {
	const left, top, line, column = 20, 52, 18, 7.8 // pixels
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	columns := 0
	for _, text := range lines {
		columns = max(columns, len([]rune(text)))
	}
	var b strings.Builder
	width, height := 2*left+int(float64(columns)*column), top+line*len(lines)+left
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`role="img" aria-label="terminal output of ironroot watch">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#10151c"/>`+"\n", width, height)
	for i, color := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`, left+20*i, color)
	}
	b.WriteString("\n" +
		`<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" ` +
		`font-size="13" fill="#d0d7de" xml:space="preserve">` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#7ee787">%s</text>`+"\n", left, top, command)
	for i, text := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d">`, left, top+line*(i+1))
		_ = xml.EscapeText(&b, []byte(text)) // a builder never fails
		b.WriteString("</text>\n")
	}
	b.WriteString("</g></svg>\n")
	return b.String()
}
