package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/agent/hardware"
	"ironroot/internal/test/testenv"
)

// onRoot returns a new directory on the root file system, because an executable does not see /tmp of the ramdisk.
func onRoot(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	dir, err := os.MkdirTemp("/var/lib", "ironroot-managers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	dir = filepath.Join(dir, "managers") // a file of the parent directory belongs to it, see CallsName
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// permitCalls writes the file by which the managers of a directory may make further system calls.
func permitCalls(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), CallsName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inspectSelf is the step of a confined executable: it prints what it sees, and tries to leave its namespaces.
const inspectSelf = `
	try() { if "$@" >/dev/null 2>&1; then echo "$* succeeded"; else echo "$* failed"; fi; }
	{
		echo "pid $$, processes" /proc/[0-9]*
		echo "command line: $(cat /proc/cmdline)"
		echo "variables: $(env | cut -d= -f1 | grep -v -e _ -e PWD -e OLDPWD | sort | tr '\n' ' ')"
		echo "kernel log: $(cat /dev/kmsg | wc -c)"
		echo "memory: $(cat /dev/mem | wc -c)"
		try touch /var/lib/planted
		try umount /proc
		try umount -l /proc/cmdline
		try mount -t proc proc /tmp
		try mknod /tmp/mem c 1 1
		try sh -c 'echo x > /proc/sys/kernel/core_pattern'
		try sh -c 'echo > /sys/kernel/uevent_helper'
		echo "messages: $(dmesg -S | wc -c)"
		try touch /tmp/scratch
		try touch /dev/planted
		try ln -s null /dev/planted
		try sh -c 'echo > /dev/null'
		echo "capabilities: $(grep CapEff /proc/self/status)"
		for dir in /tmp /run; do echo "size of $dir: $(stat -f -c '%b*%S' $dir)"; done
		echo "inherited files: $(ls -l /proc/self/fd | grep -c /etc/hostname)"
	} >&2
`

// An executable sees neither the processes of the agent nor what contains its token, and cannot change that.
func TestConfined(t *testing.T) {
	dir := onRoot(t)
	text, err := os.ReadFile(script(t, answer(site), inspectSelf+answer("null")))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "manager")
	writeExecutable(t, path, text)
	t.Setenv("IRONROOT_SECRET", "hunter2")
	inherited, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited) //nolint:errcheck // only read
	var log bytes.Buffer
	loaded := usable(Load(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)), nil))
	if len(loaded) != 1 {
		t.Fatalf("got %d managers, want 1:\n%s", len(loaded), log.String())
	}
	sum := strings.Fields(testenv.Run(t, "sha256sum", path))[0]
	if want := "path=" + path + " sha256=" + sum; !strings.Contains(log.String(), want) {
		t.Errorf("log lacks %q:\n%s", want, log.String())
	}
	steps := loaded[0].Steps(hardware.Clean, nil, nil)
	if got, err := steps[0].Run(t.Context(), hardware.Call{}); err != nil {
		t.Fatalf("got %v and %v:\n%s", got, err, log.String())
	}
	_, output, _ := strings.Cut(log.String(), "output=")
	var seen string
	if err := json.Unmarshal([]byte(strings.TrimSpace(output)), &seen); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	lines := strings.Split(seen, "\n")
	for _, want := range []string{
		"command line:", "kernel log: 0", "memory: 0", "touch /var/lib/planted failed", "umount /proc failed",
		"umount -l /proc/cmdline failed", "mount -t proc proc /tmp failed", "mknod /tmp/mem c 1 1 failed",
		"sh -c echo x > /proc/sys/kernel/core_pattern failed", "sh -c echo > /sys/kernel/uevent_helper failed",
		"messages: 0", "touch /tmp/scratch succeeded", "touch /dev/planted failed", "ln -s null /dev/planted failed",
		"sh -c echo > /dev/null succeeded", "inherited files: 0",
	} {
		found := false
		for _, line := range lines {
			found = found || strings.TrimSpace(line) == want
		}
		if !found {
			t.Errorf("the executable did not report %q:\n%s", want, seen)
		}
	}
	if !strings.HasPrefix(seen, "pid 1, processes /proc/1\n") {
		t.Errorf("got %q, want only its own process", lines[0])
	}
	var effective uint64
	if _, err := fmt.Sscanf(seen[strings.Index(seen, "CapEff:"):], "CapEff: %x", &effective); err != nil {
		t.Error(err)
	}
	if effective&(1<<unix.CAP_DAC_READ_SEARCH|1<<unix.CAP_SYS_MODULE) != 0 || effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		t.Errorf("got capabilities %x, want CAP_SYS_ADMIN, no CAP_DAC_READ_SEARCH, no CAP_SYS_MODULE", effective)
	}
	if strings.Contains(seen, "IRONROOT") || strings.Contains(seen, "hunter2") {
		t.Errorf("the executable sees the environment:\n%s", seen)
	}
	checkSizes(t, seen, map[string]int64{"/tmp": 26, "/run": 6})
	for _, name := range []string{"/var/lib/planted", "/tmp/scratch", "/dev/planted"} {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want no such file outside", name, err)
		}
	}
}

// A step that is aborted leaves no process, not even one in a session of its own.
func TestConfinedLeavesNothing(t *testing.T) {
	dir := onRoot(t)
	seconds := fmt.Sprintf("61.%d", os.Getpid()) // no other process on this machine has this argument
	text, err := os.ReadFile(script(t, "setsid sleep "+seconds+" & "+answer(site)+"; wait", ""))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "manager")
	writeExecutable(t, path, text)
	m := newManager(path, slog.New(slog.DiscardHandler), program{Argv: []string{path}})
	m.limits = small
	m.exitTimeout = short
	if err := m.describe(t.Context()); !errors.Is(err, errProtocol) {
		t.Errorf("got %v, want a protocol error", err)
	}
	if out, err := exec.CommandContext(t.Context(), "pgrep", "-f", "sleep "+seconds).Output(); err == nil {
		t.Errorf("processes are left: %s", out)
	}
}

// Only executables of the ramdisk that root alone can change are loaded. The others are not opened: a named pipe would
// hang the agent.
func TestLoadRefuses(t *testing.T) {
	dir := onRoot(t)
	valid := script(t, answer(site), "")
	text, err := os.ReadFile(valid)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"data": 0o600, "writable": 0o722, "valid": 0o755} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("valid", filepath.Join(dir, "link")),
		os.Mkdir(filepath.Join(dir, "directory"), 0o755)); err != nil {
		t.Fatal(err)
	}
	opened := watchPipe(t, filepath.Join(dir, "pipe"))
	var log bytes.Buffer
	loaded := Load(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if got := usable(loaded); len(got) != 1 {
		t.Errorf("got %d managers, want 1", len(got))
	}
	if opened() {
		t.Error("the named pipe was opened, want it refused before")
	}
	if strings.Contains(log.String(), "ERROR") {
		t.Errorf("got an error, want them logged when the managers are used:\n%s", log.String())
	}
	ignored := loadLog(t, custom(loaded)...)
	for name, want := range map[string]string{
		"data": `"not executable"`, "writable": `"owner 0, mode 722: others than root can write to it"`,
		"link": `"not a regular file"`, "directory": `"not a regular file"`, "pipe": `"not a regular file"`,
	} {
		line := `msg="custom hardware manager ignored" manager=` + filepath.Join(dir, name) + " err=" + want + "\n"
		if !strings.Contains(ignored, line) {
			t.Errorf("log lacks %q:\n%s", line, ignored)
		}
	}
	for _, m := range custom(loaded) {
		want := ""
		if len(usable([]hardware.Manager{m.(hardware.Custom).Manager})) == 0 {
			want = "hardware manager " + m.Name() + " could select disks, but is not usable: "
		}
		checkFilter(t, want, m)
	}
	checkFilter(t, "hardware manager in "+valid+" could select disks, but is not usable: ",
		custom(Load(t.Context(), valid, slog.New(slog.DiscardHandler), nil))...) // no directory
	mounted := onRoot(t)
	if err := unix.Mount("tmpfs", mounted, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(mounted, "manager")
	writeExecutable(t, path, text)
	if err := checkOrigin(path); err == nil || err.Error() != "not on the root file system" {
		t.Errorf("got %v, want an error for a file on another file system", err)
	}
	if got := Load(t.Context(), filepath.Join(dir, "absent"), slog.New(slog.DiscardHandler), nil); got != nil {
		t.Errorf("got %v of a directory that does not exist", got)
	}
}

// watchPipe makes a named pipe. The function that it returns ends the watch and reports whether the pipe was opened for
// reading before. A reader does not hang: it finds an empty pipe.
func watchPipe(t *testing.T, path string) func() bool {
	t.Helper()
	if err := unix.Mkfifo(path, 0o700); err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	opened := make(chan bool, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for a reader
		if err != nil {
			t.Error(err)
		}
		opened <- !ended.Load()
		if err == nil {
			f.Close() //nolint:errcheck // nothing was written
		}
	}()
	return func() bool {
		ended.Store(true)
		f, err := os.OpenFile(path, os.O_RDWR, 0) // does not wait
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return <-opened
	}
}
