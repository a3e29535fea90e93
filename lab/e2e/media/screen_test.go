//go:build linux

package media

import (
	"context"
	"flag"
	"image/png"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/lab/e2e/rig"
	"ironroot/lab/imageserver"
	"ironroot/lab/qemu"
)

var picture = flag.String("picture", "", "file to save the picture of the status screen in, as PNG")

// TestScreen boots a machine with a screen and a serial line as consoles, one network card without a carrier, and no
// Ironic at first. The screen's content is read from the memory of its graphics card. Kernel and agent are in FIPS
// 140-3 mode.
func TestScreen(t *testing.T) {
	t.Parallel()
	r := rig.Start(t, rig.Setup{
		Append: "console=tty0 fips=1", LateIronic: true,
		Machine: qemu.Config{
			Memory: 512 * rig.MiB, Disks: []qemu.Disk{{File: rig.File(t, "disk", 5<<30, nil)}},
			NICs: []qemu.NIC{{MAC: "52:54:00:e2:e0:02", Restrict: true}},
		},
	})
	if _, err := r.Machine.QMP(t.Context(), "set_link", map[string]any{"name": "nic1", "up": false}); err != nil {
		t.Fatal(err)
	}
	t.Run("without Ironic", func(t *testing.T) { withoutIronic(t, r) })
	r.StartConductor()
	r.WaitAgent(t)
	t.Run("ready", func(t *testing.T) {
		text := waitScreen(t, r, "To do", "waiting for commands", r.Node.UUID(), "10.0.2.15/24", "  answers",
			"accepted at")
		if strings.Contains(text, r.Node.Token()) {
			t.Error("the screen shows the token")
		}
		if strings.Count(text, "ironroot 1.") != 1 {
			t.Errorf("the screen has not one title:\n%s", text)
		}
	})
	t.Run("FIPS 140-3", func(t *testing.T) { fips(t, r) })
	t.Run("writing an image", func(t *testing.T) { progress(t, r) })
	console := r.Machine.Console().String()
	_, lines, found := strings.Cut(console, "ironroot starts")
	if !found || strings.Contains(lines, "\x1b") {
		t.Errorf("the serial console has control sequences, or no lines:\n%q", lines)
	}
}

// withoutIronic checks that the serial console and the screen show what was tried, and advice.
func withoutIronic(t *testing.T, r *rig.Rig) {
	console, from := r.Machine.Console(), int64(0)
	for _, line := range []string{
		"not in touch with Ironic", `tried: eth0 \(52:54:00:e2:e0:01\): carrier`,
		"tried:.*DHCP: 10.0.2.15/24 of server 10.0.2.2, router 10.0.2.2", "tried: no carrier on eth1",
		"tried: name servers 10.0.2.3", `tried: Ironic url=https://10\.0\.2\.2:\d+ result="connection refused"`,
		"what to do: is ironic-api running",
	} {
		m, err := console.FollowFrom(rig.Soon(t), from, regexp.MustCompile(line))
		if err != nil {
			t.Fatal(err)
		}
		from = m.End
	}
	waitScreen(t, r, "", "looking up this node in Ironic", "not known yet", "connection refused",
		"is ironic-api running", "no carrier: eth1", "10.0.2.15/24")
}

// progress checks that a stalled transfer of half an image shows a bar of half the length.
func progress(t *testing.T, r *rig.Rig) {
	image := rig.MBRImage(t, "mbr", 24*rig.MiB)
	r.Images.File("mbr.raw", image)
	r.Images.Fault("mbr.raw", imageserver.Fault{Stall: 12 * rig.MiB})
	if _, err := r.Node.Command(t.Context(), "standby.prepare_image",
		map[string]any{"image_info": r.RawInfo("mbr.raw", rig.SumAll(t, image))}, false); err != nil {
		t.Fatal(err)
	}
	waitScreen(t, r, "", "executing a command", "standby.prepare_image, since", "writing image /dev/vda, transfer",
		"[################-----------------]  50 %")
	if *picture != "" {
		savePicture(t, r)
	}
}

// waitScreen waits until the screen shows all texts and no longer shows gone (if it is not empty), and returns its
// content. The screen is drawn row by row, so gone can disappear after the texts have appeared.
func waitScreen(t *testing.T, r *rig.Rig, gone string, texts ...string) string {
	t.Helper()
	ctx := rig.Soon(t)
	for {
		screen, err := r.Machine.TextScreen(ctx)
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
			}
		}
		if missing == "" && gone != "" && strings.Contains(screen, gone) {
			missing = "an end of " + gone
		}
		if missing == "" {
			return screen
		}
		select { // a graphics card sends no notification of changes
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%v: the screen lacks %q:\n%s", context.Cause(ctx), missing, strings.TrimSpace(screen))
		}
	}
}

func savePicture(t *testing.T, r *rig.Rig) {
	t.Helper()
	shot, err := r.Machine.Screenshot(t.Context())
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
