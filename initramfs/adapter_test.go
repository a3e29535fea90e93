package initramfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/hardware/external"
	"ironroot/initramfs/squashfs"
	"ironroot/internal/test/testenv"
)

// The agent looks for managers where the builder puts them.
func TestManagerDirectories(t *testing.T) {
	if "/"+managersDir != external.Dir || "/"+rootsDir != external.RootsDir {
		t.Errorf("got /%s and /%s, want %s and %s", managersDir, rootsDir, external.Dir, external.RootsDir)
	}
}

// adapted returns an executable that runs a plug-in of a directory with packages through the adapter.
func adapted(t *testing.T, dir, plugin string) string {
	t.Helper()
	python := filepath.Join(testenv.Top(t), "initramfs/ipa")
	path := filepath.Join(t.TempDir(), "manager")
	text := fmt.Sprintf("#!/usr/bin/env -S python3 -BI\nimport sys\nsys.path[:0] = [%q, %q]\n"+
		"from ironroot_adapter import main\nmain(%q)\n", python, dir, plugin)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	return path
}

// logged matches a log with the argument secret of a program, outside of the source lines of a traceback.
var logged = regexp.MustCompile(`(?m)^\S.*secret`)

// ask sends a request to an executable and returns its messages.
func ask(t *testing.T, path, request string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Stdin = strings.NewReader(request + "\n")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", request, err, &log)
	}
	if bytes.Contains(out, []byte("secret")) || logged.MatchString(log.String()) {
		t.Errorf("%s: an argument of a program is reported:\n%s%s", request, out, &log)
	}
	return string(out)
}

// The plug-in of docs/examples conforms to the protocol through the adapter, unmodified.
func TestAdapterConforms(t *testing.T) {
	testenv.Programs(t, "python3")
	path := adapted(t, filepath.Join(testenv.Top(t), "docs/examples/plugin"), "example_lifecycle")
	var report bytes.Buffer
	err := external.Check(t.Context(), path,
		external.CheckOptions{Out: &report, Log: slog.New(slog.DiscardHandler), Root: true})
	if err != nil || !strings.Contains(report.String(), "LifecycleHardwareManager 1.2, protocol 1, 2 steps") {
		t.Errorf("got %v:\n%s", err, report.String())
	}
	const run = `{"method":"run","protocol":1,"kind":"clean","step":"verify_lifecycle","node":`
	for node, want := range map[string]string{
		`{"uuid":"u"}`: `{"type": "error", "message": "Clean step failed: node u has no time of creation"}` + "\n",
		`{"uuid":"u","created_at":"2001-01-01T00:00:00Z"}`: `{"type": "error", "message": "Clean step failed: ` +
			`node u is too old"}` + "\n",
		`{"uuid":"u","created_at":"2999-01-01T00:00:00Z"}`: `{"type": "progress", "message": "node u has 0 ports ` +
			`and is young enough"}` + "\n" + `{"type": "result", "result": {"age": -`,
	} {
		if got := ask(t, path, run+node+"}"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", node, got, want)
		}
	}
}

// strange is a plug-in with everything that the adapter must handle.
const strange = `
import os
from ironic_python_agent import errors, hardware, utils

class Inherited(hardware.HardwareManager):
    def evaluate_hardware_support(self): return hardware.HardwareSupport.NONE
    def get_service_steps(self, node, ports): return [{'step': 'service_it', 'priority': None, 'interface': 'bios'}]
    def service_it(self, node, ports): raise errors.IncompatibleHardwareMethodError()

class Strange(Inherited):
    HARDWARE_MANAGER_NAME = 'a name with spaces'
    HARDWARE_MANAGER_VERSION = 2
    def erase_block_device(self, node, device): pass
    def filter_device(self, device): return None
    def get_clean_steps(self, node, ports):
        return [{'step': s} for s in ('objects', 'ends', 'missing', 'calls', 'fails', 'shell', 'waits')]
    def get_deploy_steps(self, node, ports): raise errors.IncompatibleHardwareMethodError('no')
    def objects(self, node, ports):
        print('not a message', flush=True)
        return {'stdin': os.readlink('/proc/self/fd/0'), 'set': {1}, 'other': hardware.HardwareSupport}
    def ends(self, node, ports): raise SystemExit(3)
    def fails(self, node, ports): utils.execute('false', '-P', 'secret')
    def shell(self, node, ports): utils.execute('false secret', shell=True)
    def waits(self, node, ports): utils.execute('sh', '-c', 'sleep 600', 'secret', timeout=0.01)
    def calls(self, node, ports): return hardware.dispatch_to_managers('get_memory')

class Broken(hardware.HardwareManager):
    pass
`

// Plug-ins can do what no other manager does: print, exit, return objects, or select disks.
func TestAdapterHandles(t *testing.T) {
	testenv.Programs(t, "python3")
	dir := files(t, map[string]string{
		"strange.py": strange, "strange-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: strange\nVersion: 1\n",
		"strange-1.dist-info/entry_points.txt": "[ironic_python_agent.hardware_managers]\n" +
			"strange = strange:Strange\nbroken = strange:Broken\nabsent = absent:Absent\n",
	})
	const timeout = `"argsinfo": {}, "timeout": 604800}`
	step := func(kind, name, on string) string {
		return fmt.Sprintf(`{"kind": %q, "step": %q, "priority": 0, "interface": %q, "reboot_requested": false, `+
			`"abortable": false, `, kind, name, on) + timeout
	}
	clean := func(name string) string {
		return `{"method":"run","protocol":1,"kind":"clean","step":"` + name + `"}`
	}
	for _, c := range []struct{ plugin, request, want string }{
		{"strange", `{"method":"describe","protocols":[1,2]}`, `{"type": "result", "result": {"protocol": 1, ` +
			`"name": "a-name-with-spaces", "class": "Strange", "version": "2", "steps": [` +
			step("clean", "objects", "deploy") + ", " + step("clean", "ends", "deploy") + ", " +
			step("clean", "calls", "deploy") + ", " + step("clean", "fails", "deploy") + ", " +
			step("clean", "shell", "deploy") + ", " + step("clean", "waits", "deploy") + ", " +
			step("service", "service_it", "bios") +
			`], "selects_disks": true}}`},
		{"strange", `{"method":"evaluate","protocol":1}`, `{"type": "result", "result": {"level": 0}}`},
		{"strange", clean("objects"), `{"type": "result", "result": {"stdin": "/dev/null", "set": [1], "other": `},
		{"strange", clean("ends"), `{"type": "error", "message": "SystemExit: 3"}`},
		{"strange", clean("fails"), `{"type": "error", "message": "ProcessExecutionError: Unexpected error while ` +
			`running command.\nCommand: false with 2 arguments\nExit code: 1\n`},
		{"strange", clean("shell"), `{"type": "error", "message": "ProcessExecutionError: Unexpected error while ` +
			`running command.\nCommand: a shell command\nExit code: 1\n`},
		{"strange", clean("waits"), `{"type": "error", "message": "TimeoutExpired: Command 'sh with 3 arguments' ` +
			`timed out after 0.01 seconds"}`},
		{"strange", clean("missing"), `{"type": "error", "message": "no clean step 'missing'"}`},
		{"strange", clean("evaluate_hardware_support"), `{"type": "error", "message": "no clean step 'evaluate_`},
		{"strange", clean("calls"), `{"type": "error", "message": "No hardware manager has the method: get_memory: ` +
			`install ironic-python-agent in the manager root to call other hardware managers"}`},
		{"strange", strings.ReplaceAll(clean("service_it"), "clean", "service"), `{"type": "error", "message": ` +
			`"Method does not support this hardware", "incompatible": true}`},
		{"broken", `{"method":"evaluate","protocol":1}`, `{"type": "error", "message": "TypeError: Can't instantiate `},
		{"absent", `{"method":"evaluate","protocol":1}`, `{"type": "error", "message": "ModuleNotFoundError: No `},
		{"other", `{"method":"evaluate","protocol":1}`, `{"type": "error", "message": "no entry point other in `},
		{"strange", `{"method":"describe","protocols":[7]}`, `{"type": "error", "message": "protocols [7]: want`},
		{"strange", `not JSON`, `{"type": "error", "message": "JSONDecodeError: `},
	} {
		if got := ask(t, adapted(t, dir, c.plugin), c.request); !strings.HasPrefix(got, c.want) ||
			strings.Count(got, "\n") != 1 {
			t.Errorf("%s %s:\n got %s\nwant %s", c.plugin, c.request, got, c.want)
		}
	}
}

// forbidden is content that cannot be read.
type forbidden struct{}

func (forbidden) Open() (squashfs.File, error) { return nil, fs.ErrPermission }

// A list of entry points that is a link, or a link to a link, is a list like others. One that cannot be read is an
// error: its plug-ins would be missing.
func TestAdapterLinks(t *testing.T) {
	const dir = "usr/lib/python3/dist-packages/vendor-1.dist-info/"
	const list = dir + "entry_points.txt"
	hard := func(name, target string) squashfs.Entry {
		return squashfs.Entry{Path: name, Mode: 0o644, Link: target}
	}
	symbolic := func(name, target string) squashfs.Entry {
		return squashfs.Entry{Path: name, Mode: fs.ModeSymlink | 0o777, Target: target}
	}
	content := textEntry("usr/share/same", 0o644, []byte("["+pluginGroup+"]\nvendor = vendor:Manager\n"))
	unreadable := textEntry(list, 0o644, nil)
	unreadable.Content = forbidden{}
	for name, tt := range map[string]struct {
		entries []squashfs.Entry
		want    string // error, "" for none
	}{
		"hard link":              {[]squashfs.Entry{hard(list, content.Path)}, ""},
		"hard link to hard link": {[]squashfs.Entry{hard(list, "b"), hard("b", "c"), hard("c", content.Path)}, ""},
		"symbolic link":          {[]squashfs.Entry{symbolic(list, "../../../../share/same")}, ""},
		"absolute symbolic link": {[]squashfs.Entry{symbolic(list, "/b"), hard("b", content.Path)}, ""},
		"linked directory":       {[]squashfs.Entry{symbolic(list, "/b/same"), symbolic("b", "usr/share")}, ""},
		"parent of a linked directory": {
			[]squashfs.Entry{symbolic(list, "/a/../same"), symbolic("a", "usr/share/deep/")}, "",
		},
		"hard link to nothing":     {[]squashfs.Entry{hard(list, "b"), hard("b", "c")}, list + ": c does not exist"},
		"symbolic link to nothing": {[]squashfs.Entry{symbolic(list, "b")}, list + ": " + dir + "b does not exist"},
		"loop":                     {[]squashfs.Entry{hard(list, "b"), symbolic("b", list)}, "more than 40 links"},
		"directory": {
			[]squashfs.Entry{{Path: list, Mode: fs.ModeDir | 0o755}}, "has type d--------- and no content",
		},
		"no content": {[]squashfs.Entry{{Path: list, Mode: 0o644}}, "has type ---------- and no content"},
		"unreadable": {[]squashfs.Entry{unreadable}, list + ": permission denied"},
	} {
		added, err := adapterEntries(append(tt.entries, textEntry("usr/bin/python3", 0o755, nil), content))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		isManager := func(e squashfs.Entry) bool { return e.Path == managersDir+"/ipa-vendor" }
		if err == nil && !slices.ContainsFunc(added, isManager) {
			t.Errorf("%s: got %d files, none of them the manager of the plug-in", name, len(added))
		}
	}
}
