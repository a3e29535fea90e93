package extension

import (
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/inventory/machinetest"
	"ironroot/agent/journal"
	"ironroot/internal/testenv"
)

func TestReadEnd(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("first second third"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{5: "third", 100: "first second third", 0: ""} {
		if got, err := readEnd(file, limit); err != nil || string(got) != want {
			t.Errorf("at most %d bytes: got %q and %v, want %q", limit, got, err, want)
		}
	}
	for _, name := range []string{pipe, dir} { // the pipe has no writer
		if _, err := readEnd(name, 5); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: got %v, want an error about its type", name, err)
		}
	}
}

// The archive contains the inventory, the log file and the files of the log directory, without unreadable ones.
func TestExtraMembers(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"agent.log": "one", "dir/a.log": "two", "dir/b.log": "three"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "dir", "aa.pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.deps.Inventory = inventory.New(inventory.Options{
		System: machinetest.System(t, "kvm-q35"), SkipBMC: func() bool { return true },
	})
	members := func(file, directory string) map[string]string {
		r.deps.Config.Update(func(c *config.Config) { c.LogFile, c.LogDir = file, directory })
		got := map[string]string{}
		for _, m := range extraMembers(t.Context(), r.deps) {
			name := strings.TrimPrefix(m.Name, "files"+dir+"/")
			got[name] = string(m.Data)
			if name == "lshw" {
				got[name] = strconv.FormatBool(strings.HasPrefix(string(m.Data), "{\n  \"interfaces\":"))
			}
		}
		return got
	}
	large := filepath.Join(dir, "large")
	for i := range maxLogFiles/maxLogFile + 1 {
		path := filepath.Join(large, strconv.Itoa(i))
		err := errors.Join(os.MkdirAll(large, 0o755), os.WriteFile(path, nil, 0o600), os.Truncate(path, maxLogFile))
		if err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for name, content := range members("", large) {
		if name != "lshw" {
			total += len(content)
		}
	}
	if total != maxLogFiles {
		t.Errorf("large files: got %d bytes of them, want %d", total, maxLogFiles)
	}
	r.deps.Journal = journal.New(io.Discard, nil, 1<<20)
	r.deps.Config.Update(func(c *config.Config) { c.LogFile, c.LogDir = dir+"/agent.log", "" })
	result, err := find(t, logs(r.deps), "collect_system_logs").Call(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := base64.StdEncoding.DecodeString(result.(map[string]string)["system_logs"])
	if err != nil || testenv.Untar(t, archive)["files"+dir+"/agent.log"] != "one" {
		t.Errorf("got an archive of %d bytes, %v, want one with the log file", len(archive), err)
	}
	for name, c := range map[string]struct {
		file, directory string
		want            map[string]string
	}{
		"nothing configured": {"", "", map[string]string{}},
		"file":               {dir + "/agent.log", "", map[string]string{"agent.log": "one"}},
		"missing file": {
			dir + "/none", dir + "/dir", map[string]string{"dir/a.log": "two", "dir/b.log": "three"},
		},
		"both": {
			dir + "/agent.log", dir + "/dir",
			map[string]string{"agent.log": "one", "dir/a.log": "two", "dir/b.log": "three"},
		},
	} {
		got := members(c.file, c.directory)
		inventoried := got["lshw"]
		delete(got, "lshw")
		if diff := cmp.Diff(c.want, got); diff != "" || inventoried != "true" {
			t.Errorf("%s: inventory as an object: %q; members (-want +got):\n%s", name, inventoried, diff)
		}
	}
}
