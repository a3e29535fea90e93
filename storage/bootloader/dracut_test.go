package bootloader

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/mounted"
)

// The kernel parameter of an array is added once, and only for dracut. The shell must understand the result.
func TestAddArrayParameter(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "mkfs.ext4", "sh")
	const uuid = "01234567-89ab-cdef-0123-456789abcdef"
	const parameter = "rd.md.uuid=01234567:89abcdef:01234567:89abcdef"
	for name, tt := range map[string]struct {
		dracut, settings, want string // want is the variable in the shell
	}{
		"dracut":           {"usr/bin/dracut", "GRUB_CMDLINE_LINUX=\"quiet\"\n", "quiet " + parameter},
		"no line end":      {"usr/sbin/dracut", "GRUB_CMDLINE_LINUX='a b'", "a b " + parameter},
		"no variable":      {"usr/bin/dracut", "GRUB_TIMEOUT=1\n", " " + parameter},
		"has it":           {"usr/bin/dracut", "GRUB_CMDLINE_LINUX=" + parameter + "\n", parameter},
		"other initramfs":  {"usr/bin/other", "GRUB_CMDLINE_LINUX=\"quiet\"\n", "quiet"},
		"without settings": {"usr/bin/dracut", "", ""},
	} {
		tree := t.TempDir()
		for file, text := range map[string]string{tt.dracut: "x", grubDefaults: tt.settings} {
			if text == "" {
				continue
			}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, file)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(tree, file), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		image := testenv.SparseFile(t, 16*mib)
		testenv.Run(t, "mkfs.ext4", "-q", "-d", tree, image)
		device := testenv.Loop(t, image, 512)
		for round := range 2 {
			changed, err := addArrayParameter(t.Context(), device, uuid)
			if err != nil || changed != (round == 0 && strings.Contains(tt.want, parameter) && name != "has it") {
				t.Errorf("%s: got %v and %v in round %d", name, changed, err, round)
			}
		}
		root, err := mounted.Open(t.Context(), device, false)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		if f, err := root.Regular(grubDefaults); err == nil {
			data, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
			_ = f.Close()
		}
		if err := root.Close(); err != nil {
			t.Fatal(err)
		}
		got := testenv.Run(t, "sh", "-c", text+"\n"+`printf %s "$GRUB_CMDLINE_LINUX"`)
		if got != tt.want || !strings.HasPrefix(text, tt.settings) {
			t.Errorf("%s: got %q by %q, want %q", name, got, text, tt.want)
		}
	}
}
