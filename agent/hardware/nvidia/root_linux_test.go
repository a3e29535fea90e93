package nvidia

import (
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/hardware/external"
	"ironroot/initramfs/squashfs"
	"ironroot/internal/test/testenv"
)

// TestMain becomes a tool of a manager root in processes that package external has started, and the fake of a tool
// in the root.
func TestMain(m *testing.M) {
	external.Child()
	switch name := filepath.Base(os.Args[0]); name {
	case mstflint, mstconfig, mstfwreset:
		if err := fakeTool(name); err != nil {
			fmt.Println(err) // NVIDIA's tools report errors on the standard output
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stateName is the file in the root that names the file with the state of the cards.
const stateName = "etc/cards"

// fakeTool is a tool, whose cards are in a file.
func fakeTool(name string) error {
	path, err := os.ReadFile("/" + stateName)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(string(path))
	if err != nil {
		return err
	}
	var state cards
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	input := os.Stdin
	if opened, err := os.Open(inputPath); err == nil { // as mstflint does
		defer opened.Close()
		input = opened
	}
	argv := append([]string{name}, os.Args[1:]...)
	var out []byte
	switch command := strings.Join(argv, " "); {
	case strings.HasSuffix(command, "burn"), strings.HasSuffix(command, "reset"), strings.Contains(command, " set "):
		out, err = state.RunToEnd(input, argv...)
	default:
		out, err = state.Run(context.Background(), input, 0, argv...)
	}
	if err != nil {
		return err
	}
	if text, err = json.Marshal(state); err != nil {
		return err
	}
	fmt.Print(string(out))
	return os.WriteFile(string(path), text, 0o600)
}

// staticTest returns a statically linked program of these tests: a root of the tests has no libraries.
func staticTest(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			path = filepath.Join(t.TempDir(), "static")
			testenv.Run(t, "env", "CGO_ENABLED=0", "go", "test", "-c", "-o", path, ".")
			break
		}
	}
	return path
}

// temporary returns a new directory below dir.
func temporary(t *testing.T, dir string) string {
	t.Helper()
	path, err := os.MkdirTemp(dir, "ironroot-nvidia-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

// writeRoot writes a manager root with the fake tools, and returns its directory, which is on the root file system, and
// the file with the state of their cards. A root is discarded after each program, but it has the machine's /dev/shm.
func writeRoot(t *testing.T, names ...string) (dir, state string) {
	t.Helper()
	testenv.Root(t)
	dir, state = temporary(t, "/var/lib"), filepath.Join(temporary(t, "/dev/shm"), "cards")
	name := filepath.Join(t.TempDir(), "name")
	if err := os.WriteFile(name, []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	var entries []squashfs.Entry
	add := func(at, file string) {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, squashfs.Entry{
			Path: at, Mode: 0o755, Size: info.Size(), Content: squashfs.Path(file),
		})
	}
	add(stateName, name)
	add("usr/lib/fake-tool", staticTest(t))
	for _, name := range names {
		entries = append(entries, squashfs.Entry{
			Path: "usr/bin/" + name, Mode: fs.ModeSymlink | 0o777, Target: "../lib/fake-tool",
		})
	}
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp"} {
		entries = append(entries, squashfs.Entry{Path: name, Mode: fs.ModeDir | 0o755})
	}
	image, err := squashfs.Image(entries)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tools.squashfs"), image, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, state
}

// The tools are programs of a manager root, and run confined. mstflint reads the image from its standard input.
//
// Parity: F8 (tools of a manager root)
func TestToolsOfRoot(t *testing.T) {
	dir, path := writeRoot(t, mstflint, mstconfig, mstfwreset)
	r := newRig(t, devices[:3]...)
	r.Cards["0000:3b:00"] = &card{
		PSID: "MT_0000000359", Version: "22.36.1010", Running: "22.31.1014",
		Parameters: map[string]string{"SRIOV_EN": "False(0)"},
	}
	r.Cards["0000:5e:00"] = &card{
		PSID: "MT_0000000222", Version: "20.36.1010", Parameters: map[string]string{"PORTS": "2"},
	}
	r.files["http://h/f"] = content("MT_0000000359", "22.39.1002")
	text, err := json.Marshal(r.cards)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r.options.Tools = rootTools(dir)
	got, err := r.run(t, imageStep, images(entry("http://h/f", "MT_0000000359", "22.39.1002", nil)))
	if err != nil || !strings.Contains(got, "'version':'22.39.1002','running_version':'22.36.1010','updated':true") {
		t.Errorf("got %s and %v, want version 22.39.1002", got, err)
	}
	got, err = r.run(t, settingsStep, "{'settings': [{'deviceID': '101d', 'globalConfig': {'SRIOV_EN': true}}]}")
	if err != nil || !strings.Contains(got, "'set':['SRIOV_EN=True']") {
		t.Errorf("got %s and %v, want SRIOV_EN=True", got, err)
	}
	_, err = r.run(t, settingsStep, "{'settings': [{'deviceID': '101b', 'globalConfig': {'SRIOV_EN': true}}]}")
	checkFault(t, err, "UnSupportedConfigByFW", "configuration SRIOV_EN for device 0000:5e:00.0")
	if text, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, r.cards); err != nil {
		t.Fatal(err)
	}
	r.checkCalls(t, "mstfwreset -d 0000:3b:00.0 -y --sync 1 reset",
		"mstflint -d 0000:3b:00.0 -i /proc/self/fd/0 -y burn",
		"mstfwreset -d 0000:3b:00.0 -y --sync 1 reset", "mstconfig -d 0000:3b:00.0 -y set SRIOV_EN=True")
}

// rootTools finds the tools in the manager roots of a directory.
type rootTools string

func (r rootTools) FindTools(ctx context.Context, names ...string) (Tools, error) {
	return external.FindTools(ctx, string(r), names...)
}
