package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/hardware"
	"ironroot/initramfs/squashfs"
	"ironroot/internal/test/testenv"
)

// program returns the entries of a dynamically linked program of this machine, with its libraries.
func programEntries(t *testing.T, seen map[string]bool, names ...string) []squashfs.Entry {
	t.Helper()
	var entries []squashfs.Entry
	add := func(at, file string) {
		at = strings.TrimPrefix(at, "/")
		if seen[at] {
			return
		}
		seen[at] = true
		file, err := filepath.EvalSymlinks(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, squashfs.Entry{
			Path: at, Mode: 0o755, Size: info.Size(), Content: squashfs.Path(file),
		})
	}
	library := regexp.MustCompile(`(/\S+) \(0x`)
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		add("bin/"+name, path)
		for _, m := range library.FindAllStringSubmatch(testenv.Run(t, "ldd", path), -1) {
			add(m[1], m[1])
		}
	}
	return entries
}

// textFile is an entry with a content.
func textFile(path string, mode fs.FileMode, text string) squashfs.Entry {
	return squashfs.Entry{Path: path, Mode: mode, Size: int64(len(text)), Content: squashfs.Bytes(text)}
}

// writeRoot writes a manager root with a shell, a few programs and managers, and returns its directory.
func writeRoot(t *testing.T, managers map[string]string, more ...squashfs.Entry) string {
	t.Helper()
	testenv.Programs(t, "ldd")
	dir := onRoot(t)
	entries := programEntries(t, map[string]bool{}, "sh", "cat", "ls", "mount", "mkdir", "touch", "chroot", "stat")
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp", "etc"} {
		entries = append(entries, squashfs.Entry{Path: name, Mode: fs.ModeDir | 0o755})
	}
	entries = append(entries, more...)
	for name, text := range managers {
		entries = append(entries, textFile(strings.TrimPrefix(Dir, "/")+"/"+name, 0o755, text))
	}
	image, err := squashfs.Image(entries)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vendor.squashfs"), image, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// loadRoots loads the managers of a directory with roots and returns them with the log.
func loadRoots(t *testing.T, dir string) ([]hardware.Manager, string) {
	t.Helper()
	var log bytes.Buffer
	loaded := LoadRoots(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)), nil)
	return loaded, log.String()
}

// inRoot is a step of a manager in a root: it prints what it sees, and tries to leave the root.
const inRoot = `
	try() { if "$@" >/dev/null 2>&1; then echo "$* succeeded"; else echo "$* failed"; fi; }
	{
		echo "pid $$, processes" /proc/[0-9]*
		echo "root:" /*
		echo "command line: $(cat /proc/cmdline)"
		echo "kernel log: $(cat /dev/kmsg)"
		for dir in /tmp /run /dev/disk /; do echo "size of $dir: $(stat -f -c '%b*%S' $dir)"; done
		echo "udev: $(ls -d /run/udev/data /dev/disk)"
		try touch /usr/planted
		try touch /tmp/scratch
		try touch /dev/planted
		try mount -t proc proc /tmp
		try mkdir /run/x
		try chroot /run/x
		try sh -c 'echo x > /proc/sys/kernel/core_pattern'
		try sh -c 'echo > /sys/kernel/uevent_helper'
		try sh -c 'echo > /dev/null'
	} >&2
`

// A manager in a root runs dynamically linked programs of the root. It sees neither the ramdisk nor the agent, and what
// it writes is discarded. Afterwards nothing is mounted, and no loop device is attached.
func TestRoot(t *testing.T) {
	text, err := os.ReadFile(script(t, answer(site), inRoot+answer("null")))
	if err != nil {
		t.Fatal(err)
	}
	dir := writeRoot(t, map[string]string{"site": string(text)})
	list, log := loadRoots(t, dir)
	loaded := usable(list)
	if len(list) != 1 || len(loaded) != 1 {
		t.Fatalf("got %d managers, want 1:\n%s", len(loaded), log)
	}
	image := filepath.Join(dir, "vendor.squashfs")
	for _, want := range []string{
		`"manager root found" root=` + image + " sha256=" + strings.Fields(testenv.Run(t, "sha256sum", image))[0],
		`"external hardware manager found" root=` + image + " path=" + Dir + "/site sha256=" +
			strings.Fields(testenv.Run(t, "sh", "-c", "printf '%s' \"$1\" | sha256sum", "sh", string(text)))[0],
	} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
	var output bytes.Buffer
	loaded[0].log = slog.New(slog.NewTextHandler(&output, nil))
	for range 2 { // the second run does not see what the first has written
		output.Reset()
		if got, err := loaded[0].Steps(hardware.Clean, nil, nil)[0].Run(t.Context(), hardware.Call{}); err != nil {
			t.Fatalf("got %v and %v:\n%s", got, err, output.String())
		}
		checkInRoot(t, output.String())
	}
	attached := testenv.Run(t, "losetup", "--list", "--noheadings", "--output", "BACK-FILE")
	if strings.Contains(attached, dir) {
		t.Errorf("still attached:\n%s", attached)
	}
}

// checkSizes checks the sizes of the file systems in memory, which must not take all of it. Each has at most so many
// percent of it.
func checkSizes(t *testing.T, seen string, percentages map[string]int64) {
	t.Helper()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	memory := int64(info.Totalram) * int64(info.Unit)
	for dir, percent := range percentages {
		var blocks, size int64
		_, text, _ := strings.Cut(seen, "\nsize of "+dir+": ")
		if _, err := fmt.Sscanf(text, "%d*%d", &blocks, &size); err != nil {
			t.Errorf("size of %s: %v", dir, err)
		}
		if got, most := blocks*size, memory*percent/100; got > most {
			t.Errorf("%s has %d bytes, want at most %d", dir, got, most)
		}
	}
}

// checkInRoot checks what the step inRoot has printed.
func checkInRoot(t *testing.T, log string) {
	t.Helper()
	_, output, _ := strings.Cut(log, "output=")
	var seen string
	if err := json.Unmarshal([]byte(strings.TrimSpace(output)), &seen); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	lines := strings.Split(seen, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	all := "\n" + strings.Join(lines, "\n") + "\n"
	for _, want := range []string{
		"pid 1, processes /proc/1", "command line:", "kernel log:", "udev: /dev/disk\n/run/udev/data",
		"touch /usr/planted succeeded", "touch /tmp/scratch succeeded", "touch /dev/planted failed",
		"mount -t proc proc /tmp failed", "mkdir /run/x succeeded", "chroot /run/x failed",
		"sh -c echo x > /proc/sys/kernel/core_pattern failed", "sh -c echo > /sys/kernel/uevent_helper failed",
		"sh -c echo > /dev/null succeeded",
	} {
		if !strings.Contains(all, "\n"+want+"\n") {
			t.Errorf("the manager did not report %q:\n%s", want, seen)
		}
	}
	checkSizes(t, all, map[string]int64{"/tmp": 26, "/run": 6, "/dev/disk": 1, "/": 26})
	if strings.Contains(all, "/home") || !strings.Contains(all, "root: /bin ") {
		t.Errorf("got %q, want the directories of the root", all)
	}
}

// Roots that cannot be used are logged with the reason, and do not prevent others from being used.
func TestBadRoots(t *testing.T) {
	good := script(t, answer(site), answer("null"))
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	dir := writeRoot(t, map[string]string{
		"site": string(text), "crash": "#!/bin/sh\nexit 7\n", "garbage": "#!/bin/sh\necho garbage\n",
		"interpreter": "#!/usr/bin/absent\n",
	})
	image, err := os.ReadFile(filepath.Join(dir, "vendor.squashfs"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(image)
	for i := 96; i < len(damaged); i++ { // all but the superblock
		damaged[i] ^= 0x5a
	}
	for name, data := range map[string][]byte{
		"text.squashfs": bytes.Repeat([]byte("no file system"), 1000), "cut.squashfs": image[:len(image)/2&^0xfff],
		"damaged.squashfs": damaged, "empty.squashfs": nil, "other.img": image,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "open.squashfs"), image, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "open.squashfs"), 0o666); err != nil {
		t.Fatal(err)
	}
	list, log := loadRoots(t, dir)
	if loaded := usable(list); len(loaded) != 1 || loaded[0].Name() != "site" {
		t.Errorf("got managers %v, want one", loaded)
	}
	log += loadLog(t, custom(list)...)
	// Each of the others could select disks.
	var unusable []string
	for _, m := range custom(list) {
		if m.Name() == "site" {
			checkFilter(t, "", m)
			continue
		}
		unusable = append(unusable, strings.ReplaceAll(m.Name(), dir, ""))
		checkFilter(t, "hardware manager "+m.Name()+" could select disks, but is not usable: ", m)
	}
	slices.Sort(unusable)
	want := []string{
		Dir + "/crash in /vendor.squashfs", Dir + "/garbage in /vendor.squashfs",
		Dir + "/interpreter in /vendor.squashfs", "in /cut.squashfs", "in /damaged.squashfs", "in /empty.squashfs",
		"in /open.squashfs", "in /other.img", "in /text.squashfs",
	}
	if diff := cmp.Diff(want, unusable); diff != "" {
		t.Errorf("managers that are not usable differ (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		`manager root ignored.*/text.squashfs.*mount .*/text.squashfs: squashfs: invalid argument`,
		`manager root ignored.*/cut.squashfs.*mount .*/cut.squashfs: squashfs: `,
		`manager root ignored.*/damaged.squashfs`,
		`manager root ignored.*/empty.squashfs.*mount .*/empty.squashfs: `,
		`manager root ignored.*/other.img.*want a name that ends with .squashfs`,
		`manager root ignored.*/open.squashfs.*others than root can write to it`,
		`custom hardware manager ignored.*managers/crash.*exit status 7`,
		`custom hardware manager ignored.*managers/garbage.*protocol error`,
		`custom hardware manager ignored.*run /usr/lib/ironroot/managers/interpreter: no such file or directory`,
	} {
		if !regexp.MustCompile(want).MatchString(log) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
}

// A root without a directory that is needed to mount something into it is refused, and so is a link in its place.
func TestIncompleteRoot(t *testing.T) {
	for name, entries := range map[string][]squashfs.Entry{
		"dev: no such file or directory": {{Path: "sys", Mode: fs.ModeDir | 0o755}},
		"dev: not a directory":           {{Path: "dev", Mode: fs.ModeSymlink | 0o777, Target: "/tmp"}},
	} {
		dir := onRoot(t)
		image, err := squashfs.Image(entries)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a.squashfs"), image, 0o600); err != nil {
			t.Fatal(err)
		}
		if list, log := loadRoots(t, dir); len(usable(list)) != 0 || !strings.Contains(log, name) {
			t.Errorf("got %d managers, want none and %q:\n%s", len(usable(list)), name, log)
		}
	}
}

// A loop device that other processes take is tried again with pauses, until the limit or the end of the context.
func TestRetryBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("step aborted")
		for name, tt := range map[string]struct {
			succeedAt, cancelAt int
			want                error
			wantAttempts        int
		}{
			"free":           {1, 0, nil, 1},
			"busy once":      {2, 0, nil, 2},
			"busy":           {0, 0, unix.EBUSY, attachAttempts},
			"cancelled":      {0, 3, cause, 3},
			"free, too late": {5, 3, cause, 3},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			attempts, start := 0, time.Now()
			err := retryBusy(ctx, func() error {
				attempts++
				if attempts == tt.cancelAt {
					cancel(cause)
				}
				if attempts == tt.succeedAt {
					return nil
				}
				return fmt.Errorf("/dev/loop0: %w", unix.EBUSY)
			})
			cancel(nil)
			if !errors.Is(err, tt.want) || attempts != tt.wantAttempts {
				t.Errorf("%s: got %v after %d attempts, want %v after %d", name, err, attempts, tt.want,
					tt.wantAttempts)
			}
			if least := time.Duration(attempts-1) * attachPause; tt.cancelAt == 0 && time.Since(start) < least {
				t.Errorf("%s: %d attempts took %v, want %v", name, attempts, time.Since(start), least)
			}
		}
	})
}
