package e2e

import (
	"context"
	"flag"
	"image/png"
	"os"
	"strings"
	"testing"
	"time"

	"ironroot/lab/qemu"
)

var picture = flag.String("picture", "", "file to save the picture of the status screen in, as PNG")

// TestScreen boots a machine whose screen is a console, and reads the status screen from the memory of its graphics card.
func TestScreen(t *testing.T) {
	r := start(t, setup{append: "console=tty0", machine: qemu.Config{Memory: 512 * mib}})
	r.waitAgent(t)
	text := r.waitScreen(t, "waiting for commands", r.node.UUID(), "10.0.2.15/24", "answers", "accepted at")
	if strings.Count(text, "ironroot 1.") != 1 {
		t.Errorf("the screen has not one title:\n%s", text)
	}
	if *picture != "" {
		r.savePicture(t)
	}
	console := r.machine.Console().String()
	_, lines, found := strings.Cut(console, "ironroot starts")
	if !found || strings.Contains(lines, "\x1b") {
		t.Errorf("the serial console has control sequences, or no lines:\n%q", lines)
	}
}

// waitScreen waits until the screen shows all the texts, and returns what it shows.
func (r *rig) waitScreen(t *testing.T, texts ...string) string {
	t.Helper()
	ctx := soon(t)
	for {
		screen, err := r.machine.TextScreen(ctx)
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
			}
		}
		if missing == "" {
			return screen
		}
		select { // a graphics card tells nobody that its memory was written to
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%v: the screen lacks %q:\n%s", context.Cause(ctx), missing, strings.TrimSpace(screen))
		}
	}
}

func (r *rig) savePicture(t *testing.T) {
	t.Helper()
	shot, err := r.machine.Screenshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(*picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(f, shot); err != nil {
		t.Fatal(err)
	}
}
