package extension

import (
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/inventory/machinetest"
	"ironroot/agent/journal"
	"ironroot/internal/test/testenv"
)

// The archive contains the inventory, the log file and the files of the log directory.
func TestExtraMembers(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"agent.log": "one", "dir/a.log": "two", "dir/below/b.log": "three"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.deps.Inventory = inventory.New(inventory.Options{System: machinetest.System(t, "kvm-q35")})
	members := func(file, directory string) map[string]string {
		r.deps.Config.Update(func(c *config.Config) { c.LogFile, c.LogDir = file, directory })
		got := map[string]string{}
		for _, m := range extraMembers(t.Context(), r.deps) {
			name := strings.TrimPrefix(m.Name, dir[1:]+"/")
			got[name] = string(m.Data)
			if name == "lshw" {
				got[name] = strconv.FormatBool(strings.HasPrefix(string(m.Data), "{\n  \"interfaces\":"))
			}
		}
		return got
	}
	r.deps.Journal = journal.New(io.Discard, nil, 1<<20)
	r.deps.Config.Update(func(c *config.Config) { c.LogFile, c.LogDir = dir+"/agent.log", "" })
	result, err := find(t, logs(r.deps), "collect_system_logs").Call(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := base64.StdEncoding.DecodeString(result.(map[string]string)["system_logs"])
	if err != nil || testenv.Untar(t, archive)[dir[1:]+"/agent.log"] != "one" {
		t.Errorf("got an archive of %d bytes, %v, want one with the log file", len(archive), err)
	}
	for name, c := range map[string]struct {
		file, directory string
		want            map[string]string
	}{
		"nothing configured": {"", "", map[string]string{}},
		"file":               {dir + "/agent.log", "", map[string]string{"agent.log": "one"}},
		"missing file": {
			dir + "/none", dir + "/dir", map[string]string{"dir/a.log": "two", "dir/below/b.log": "three"},
		},
		"both": {
			dir + "/agent.log", dir + "/dir",
			map[string]string{"agent.log": "one", "dir/a.log": "two", "dir/below/b.log": "three"},
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
