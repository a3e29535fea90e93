package inject

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// injectionDisk is a disk with partitions: 1 is of LVM and has /etc, 2 has no file system, 3 has no /etc and a link of
// that name out of it, 4 and 5 have /etc.
type injectionDisk struct {
	t    *testing.T
	path string
	in   Injector
	conf *config.Live
	log  *testenv.Log
}

// fakeDisks implements [block.Lister].
type fakeDisks struct {
	disks []block.Device
	err   error // of the list
}

func (f fakeDisks) Disks(context.Context) ([]block.Device, error) { return f.disks, f.err }

// noArrays implements [Assembler] for a machine without arrays.
type noArrays struct{}

func (noArrays) Assemble(context.Context, *node.Node) (softraid.Assembled, error) {
	return softraid.Assembled{}, nil
}

// newInjector returns an injector of a machine without devices, but with disks.
func newInjector(t *testing.T, disks ...block.Device) Injector {
	t.Helper()
	return Injector{
		System: sysfs.Root{Path: t.TempDir()}, Disks: fakeDisks{disks: disks}, Arrays: noArrays{},
		Log: slog.New(slog.DiscardHandler),
	}
}

func typeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Type
	}
	return ""
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func nodeWith(t *testing.T, fields string) *node.Node {
	t.Helper()
	n, err := node.FromJSON([]byte(`{"uuid": "u", ` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func newInjectionDisk(t *testing.T) *injectionDisk {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "sgdisk", "mkfs.ext4", "debugfs", "e2fsck", "blkid")
	image := testenv.SparseFile(t, 64*raidtest.MiB)
	args := []string{}
	for n, kind := range []string{"8e00", "8300", "8300", "8300", "8300"} {
		args = append(args, "-n", fmt.Sprintf("%d:%d:+10M", n+1, (1+11*n)*2048), "-t", fmt.Sprintf("%d:%s", n+1, kind))
	}
	testenv.Run(t, "sgdisk", append(args, image)...)
	out, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for n, fill := range map[int]func(dir string) error{
		0: func(dir string) error { return os.Mkdir(filepath.Join(dir, "etc"), 0o755) },
		2: func(dir string) error { return os.Symlink("../../../../../etc", filepath.Join(dir, "etc")) },
		3: fillRoot,
		4: fillRoot,
	} {
		tree, name := t.TempDir(), testenv.SparseFile(t, 10*raidtest.MiB)
		if err := fill(tree); err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, "mkfs.ext4", "-q", "-d", tree, name)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.WriteAt(data, int64(1+11*n)*raidtest.MiB); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	d := &injectionDisk{t: t, path: testenv.Loop(t, image, 512), log: &testenv.Log{}}
	if err := partition.Sync(t.Context(), sysfs.Root{}, d.path); err != nil {
		t.Fatal(err)
	}
	disk := block.Device{Name: filepath.Base(d.path), Path: d.path, Type: "disk", Size: 5 << 30}
	d.conf = config.NewLive(&config.Config{ImageDownloadConnectionTimeout: 10 * time.Second})
	d.in = newInjector(t, disk)
	d.in.System, d.in.Log = sysfs.Root{}, slog.New(slog.NewTextHandler(d.log, nil))
	d.in.Imager = imaging.New(imaging.Options{
		Config: d.conf, Node: &node.Cache{}, Disks: d.in.Disks, Log: d.in.Log,
	})
	return d
}

// fillRoot makes the files of a root file system.
func fillRoot(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "etc/old"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/hostname"), bytes.Repeat([]byte("old "), 100), 0o640); err != nil {
		return err
	}
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "etc/link")); err != nil {
		return err
	}
	return os.Symlink("/etc", filepath.Join(dir, "up"))
}

// inject runs the step with files and further arguments, as JSON.
func (d *injectionDisk) inject(n *node.Node, ports []map[string]any, args map[string]string) error {
	d.t.Helper()
	in, raw := d.in, map[string]json.RawMessage{}
	in.Node, in.Ports = n, ports
	for name, text := range args {
		raw[name] = json.RawMessage(text)
	}
	return in.Run(d.t.Context(), raw)
}

// files runs the step with files.
func (d *injectionDisk) files(text string) error {
	d.t.Helper()
	return d.inject(nil, nil, map[string]string{"files": text})
}

// debugfs returns the output of a command for the file system of a partition.
func (d *injectionDisk) debugfs(partition int, command string) string {
	d.t.Helper()
	return testenv.Run(d.t, "debugfs", "-R", command, fmt.Sprintf("%sp%d", d.path, partition))
}

// want fails unless a file has this content, mode and owner.
func (d *injectionDisk) want(partition int, name, content, mode string, owner, group int) {
	d.t.Helper()
	if got := d.debugfs(partition, "cat "+name); !strings.HasSuffix(got, content) ||
		!strings.Contains(d.debugfs(partition, "stat "+name), fmt.Sprintf("Size: %d\n", len(content))) {
		d.t.Errorf("%s: got %q, want %q", name, got, content)
	}
	got := strings.Join(strings.Fields(d.debugfs(partition, "stat "+name)), " ")
	if want := fmt.Sprintf("User: %d Group: %d", owner, group); !strings.Contains(got, want) ||
		!strings.Contains(got, "Mode: "+mode+" ") {
		d.t.Errorf("%s: got %s, want mode %s and %s", name, got, mode, want)
	}
}

// gone fails if a file exists.
func (d *injectionDisk) gone(partition int, name string) {
	d.t.Helper()
	if got := d.debugfs(partition, "stat "+name); !strings.Contains(got, "File not found") {
		d.t.Errorf("%s exists: %s", name, got)
	}
}

// check fails if a file system is damaged or in use.
func (d *injectionDisk) check() {
	d.t.Helper()
	for _, n := range []int{1, 3, 4, 5} {
		testenv.Run(d.t, "e2fsck", "-fn", fmt.Sprintf("%sp%d", d.path, n))
	}
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// Parity: P8 (files)
func TestInjectFiles(t *testing.T) {
	d := newInjectionDisk(t)
	err := d.files(`[{"path": "/etc/sysctl.d/a", "content": ""}, {"path": "/etc/f", "content": "", "mode": null}]`)
	if err == nil || !strings.Contains(err.Error(), "entry 2 of 'files': mode must be") {
		t.Errorf("got %v, want a refusal of the second file", err)
	}
	d.gone(4, "/etc/sysctl.d")
	partUUID := strings.TrimSpace(testenv.Run(t, "blkid", "-p", "-o", "value", "-s", "PART_ENTRY_UUID", d.path+"p5"))
	if err := d.files(fmt.Sprintf(`[
		{"path": "/etc/sysctl.d/a/my.conf", "content": %q, "dirmode": 448},
		{"path": "etc/hostname", "content": %q},
		{"path": "/etc/old/file", "content": "", "dirmode": 511, "mode": 2541, "owner": 42, "group": 7},
		{"path": "/etc/../etc//owner", "content": %[1]q, "owner": 1000},
		{"path": "/etc/link", "content": %[1]q, "mode": 384},
		{"path": "/up/through", "content": %[1]q, "partition": "4"},
		{"path": "/file", "content": %[1]q, "partition": 5, "group": 4294967},
		{"path": "/etc/device", "content": %[1]q, "partition": "%[3]sp5", "deleted": false},
		{"path": "/etc/linked", "content": %[1]q, "partition": "/dev/disk/by-partuuid/%[4]s"}]`,
		encoded("content\n"), encoded("new"), d.path, partUUID)); err != nil {
		t.Fatal(err)
	}
	d.want(4, "/etc/sysctl.d/a/my.conf", "content\n", "0644", 0, 0)
	d.want(4, "/etc/hostname", "new", "0640", 0, 0)
	d.want(4, "/etc/old/file", "", "04755", 42, 7)
	d.want(4, "/etc/owner", "content\n", "0644", 1000, 0)
	d.want(4, "/etc/shadow", "content\n", "0600", 0, 0)
	d.want(4, "/etc/through", "content\n", "0644", 0, 0)
	d.want(5, "/file", "content\n", "0644", 0, 4294967)
	d.want(5, "/etc/device", "content\n", "0644", 0, 0)
	d.want(5, "/etc/linked", "content\n", "0644", 0, 0)
	for name, mode := range map[string]string{"/etc/sysctl.d": "0755", "/etc/sysctl.d/a": "0700", "/etc/old": "0700"} {
		if got := d.debugfs(4, "stat "+name); !strings.Contains(got, "Mode:  "+mode) {
			t.Errorf("%s: got %s, want mode %s", name, got, mode)
		}
	}
	err = d.files(`[{"path": "/etc/hostname", "deleted": true}, {"path": "/etc/link", "deleted": true},
		{"path": "/etc/none/of/them", "deleted": true},
		{"path": "/file", "partition": 5, "deleted": true, "content": ""}]`)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"/etc/owner": "file injected", "/etc/link": "file removed"} {
		if !strings.Contains(d.log.String(), fmt.Sprintf("msg=%q path=%s device=", want, name)) {
			t.Errorf("got log %s, want %q for %s", d.log, want, name)
		}
	}
	d.gone(4, "/etc/hostname")
	d.gone(4, "/etc/link")
	d.gone(5, "/file")
	d.want(4, "/etc/shadow", "content\n", "0600", 0, 0)
	d.check()
}

// The property of the node comes first.
//
// Parity: P8 (property of the node)
func TestInjectFilesOfTheNode(t *testing.T) {
	d := newInjectionDisk(t)
	n, err := node.FromJSON(fmt.Appendf(nil, `{"uuid": "u", "properties": {"inject_files": [
		{"path": "/etc/both", "content": %q, "mode": 384}, {"path": "/etc/node", "content": %[1]q}]}}`,
		encoded("node")))
	if err != nil {
		t.Fatal(err)
	}
	args := map[string]string{"files": fmt.Sprintf(`[{"path": "/etc/both", "content": %q}]`, encoded("step"))}
	if err := d.inject(n, nil, args); err != nil {
		t.Fatal(err)
	}
	d.want(4, "/etc/both", "step", "0600", 0, 0)
	d.want(4, "/etc/node", "node", "0644", 0, 0)
	for _, none := range []map[string]string{nil, {"files": "null"}, {"files": "[]", "verify_ca": "null"}} {
		if err := d.inject(nil, nil, none); err != nil {
			t.Errorf("%v: %v", none, err)
		}
	}
}

// Content is fetched from URLs that name fields of the node and its ports.
//
// Parity: P8 (URLs)
func TestInjectFilesFromURLs(t *testing.T) {
	d := newInjectionDisk(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 3*raidtest.MiB/16)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("%s was requested with credentials", r.URL)
		}
		switch r.URL.Path {
		case "/1be26c0b/52:54:00:00:00:01":
			w.Write([]byte("for this node")) //nolint:errcheck // the client may disconnect
		case "/large":
			w.Write(large) //nolint:errcheck // the client may disconnect
		case "/silent":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/broken":
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("part")) //nolint:errcheck // the client may disconnect
		default:
			http.NotFound(w, r)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	d.conf.Update(func(c *config.Config) {
		c.ImageServerAuthStrategy, c.ImageServerUser, c.ImageServerPassword = "http_basic", "user", ""
	})
	n, err := node.FromJSON([]byte(`{"uuid": "1be26c0b"}`))
	if err != nil {
		t.Fatal(err)
	}
	ports := []map[string]any{{"address": "52:54:00:00:00:01"}}
	run := func(url, verify string) error {
		return d.inject(n, ports, map[string]string{
			"files": fmt.Sprintf(`[{"path": "/etc/fetched", "content": %q}]`, url), "verify_ca": verify,
		})
	}
	if err := run(plain.URL+"/{node[uuid]}/{ports[0][address]}", "true"); err != nil {
		t.Fatal(err)
	}
	d.want(4, "/etc/fetched", "for this node", "0644", 0, 0)
	for url, text := range map[string]string{
		plain.URL + "/missing":                        "404",
		secure.URL + "/large":                         "certificate",
		"http://127.0.0.1:1/{node[uuid]}/refused?a=b": "connection refused",
	} {
		if err := run(url, "true"); typeOf(err) != "CommandExecutionError" || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want a CommandExecutionError with %q", url, err, text)
		}
	}
	d.want(4, "/etc/fetched", "for this node", "0644", 0, 0)
	unset := map[string]string{"files": fmt.Sprintf(`[{"path": "/etc/fetched", "content": %q}]`, secure.URL+"/large")}
	if err := d.inject(n, ports, unset); !strings.Contains(errorText(err), "certificate") {
		t.Errorf("no verify_ca: got %v, want an error of the certificate", err)
	}
	if err := run(plain.URL+"/broken", "true"); typeOf(err) != "CommandExecutionError" {
		t.Errorf("broken connection: got %v, want a CommandExecutionError", err)
	}
	d.conf.Update(func(c *config.Config) { c.ImageDownloadMaxDuration = 50 * time.Millisecond })
	if err := run(plain.URL+"/silent", "true"); typeOf(err) != "CommandExecutionError" ||
		!strings.Contains(err.Error(), "maximum duration reached") {
		t.Errorf("silent server: got %v, want a CommandExecutionError", err)
	}
	d.conf.Update(func(c *config.Config) { c.ImageDownloadMaxDuration = 0 })
	if err := run(secure.URL+"/large", "false"); err != nil {
		t.Fatal(err)
	}
	d.want(4, "/etc/fetched", string(large), "0644", 0, 0)
	d.check()
}

// Files that cannot be written are errors, and no partition is left in use.
func TestInjectFilesFails(t *testing.T) {
	d := newInjectionDisk(t)
	content := encoded("content")
	protected, err := node.FromJSON(fmt.Appendf(nil,
		`{"uuid": "u", "properties": {"skip_block_devices": [{"name": %q}]}}`, d.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		node       *node.Node
		kind, text string
	}{
		{
			"no such directory", `"path": "/srv/file"`, nil, "DeviceNotFound",
			fmt.Sprintf("has the directory /srv: searched %sp2 (unreadable), %[1]sp3, %[1]sp4, %[1]sp5", d.path),
		},
		{"no file system", `"path": "/etc/file", "partition": 2`, nil, "CommandExecutionError", "no known file system"},
		{"no such partition", `"path": "/etc/file", "partition": 6`, nil, "CommandExecutionError", "no such file"},
		{"a directory", `"path": "/etc/old"`, nil, "CommandExecutionError", "is a directory"},
		{"below a file", `"path": "/etc/hostname/file"`, nil, "CommandExecutionError", "not a directory"},
		{
			"another device", `"path": "/etc/file", "partition": "/dev/null"`, nil, "DeviceNotFound",
			"/dev/null is neither",
		},
		{
			"an unknown link", `"path": "/etc/file", "partition": "/dev/disk/by-label/none"`, nil, "DeviceNotFound",
			"/dev/disk/by-label/none: no device has this link",
		},
		{
			"a protected device", fmt.Sprintf(`"path": "/etc/file", "partition": "%sp4"`, d.path), protected,
			"DeviceNotFound", "is protected by skip_block_devices",
		},
	} {
		files := fmt.Sprintf(`[{%s, "content": %q}]`, tt.file, content)
		err := d.inject(tt.node, nil, map[string]string{"files": files})
		if typeOf(err) != tt.kind || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: got %v, want %s with %q", tt.name, err, tt.kind, tt.text)
		}
	}
	if err := d.files(`[{"path": "/etc/old", "deleted": true}]`); typeOf(err) != "CommandExecutionError" {
		t.Errorf("deleted directory: got %v, want a CommandExecutionError", err)
	}
	d.check()
	d.want(4, "/etc/hostname", strings.Repeat("old ", 100), "0640", 0, 0)
}

// A device is reported as unknown only if all disks and partitions could be listed. A disk that cannot be read does not
// prevent files on another one.
func TestInjectionDeviceUnread(t *testing.T) {
	in := newInjector(t, block.Device{Name: "sda", Path: "/dev/sda"}, block.Device{Name: "sdb", Path: "/dev/sdb"})
	if err := os.MkdirAll(in.System.Sys("class/block/sda"), 0o755); err != nil { // sdb is missing
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(ctx context.Context, device string, want ...string) {
		t.Helper()
		_, err := in.namedDevice(ctx, device)
		if len(want) == 0 && err != nil || len(want) > 0 && typeOf(err) != "DeviceNotFound" {
			t.Errorf("%s: got %v, want DeviceNotFound with %q", device, err, want)
			return
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %v, want %q", device, err, text)
			}
		}
	}
	check(t.Context(), "/dev/sdb")
	check(t.Context(), "/dev/sdb1", "find device /dev/sdb1: partitions of /dev/sdb: ")
	_, err := in.namedDevice(cancelled, "/dev/sdb1")
	if !errors.Is(err, context.Canceled) || typeOf(err) != "" {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	if err := os.MkdirAll(in.System.Sys("class/block/sdb"), 0o755); err != nil {
		t.Fatal(err)
	}
	check(t.Context(), "/dev/sdb1", "/dev/sdb1 is neither a disk of this machine nor a partition of one")
	disks, _ := in.Disks.Disks(t.Context())
	in.Disks = fakeDisks{disks[:1], fmt.Errorf("%w: sdb hangs", block.ErrUnreadable)}
	check(t.Context(), "/dev/sda")
	check(t.Context(), "/dev/sdb", "find device /dev/sdb: ", "sdb hangs")
}

// Everything that is wrong with files is named, before one of them is written.
//
// Parity: P8 (validation)
func TestInjectFilesValidation(t *testing.T) {
	in := newInjector(t)
	good := `"path": "/etc/file", "content": ""`
	for text, want := range map[string][]string{
		`{}`:   {"'files' must be a list of objects"},
		`"a"`:  {"'files' must be a list of objects"},
		`[""]`: {"'files' must be a list of objects"},
		`[{` + good + `, "color": 1, "colour": 2}, {}]`: {
			"Validation of files failed: ", "entry 1 of 'files': unexpected field 'color'; ",
			"entry 1 of 'files': unexpected field 'colour'; ", "entry 2 of 'files': expected a path; ",
			"entry 2 of 'files': expected content or deleted",
		},
		`[null]`:                                                {"expected a path"},
		`[{"path": 1, "content": ""}]`:                          {"path must be a text"},
		`[{"path": null, "content": ""}]`:                       {"expected a path"},
		`[{"path": "/f", "content": ""}]`:                       {"in the root directory, which requires a partition"},
		`[{"path": "f", "content": ""}]`:                        {`path "f" is in the root directory`},
		`[{"path": "/a/../f", "content": "", "partition": ""}]`: {"is in the root directory"},
		`[{"path": "/etc/", "content": ""}]`:                    {`path "/etc/" is a directory`},
		`[{"path": "..", "content": "", "partition": 1}]`:       {`path ".." is a directory`},
		`[{"path": "/etc/f"}]`:                                  {"expected content or deleted"},
		`[{"path": "/etc/f", "content": null}]`:                 {"expected content or deleted"},
		`[{"path": "/etc/f", "content": []}]`:                   {"content must be a text"},
		`[{"path": "/etc/f", "content": "YQ==", "deleted": true}]`: {
			"content cannot be used with deleted",
		},
		`[{` + good + `, "deleted": "yes"}]`:             {"deleted must be true or false"},
		`[{"path": "/etc/f", "content": "no base64?"}]`:  {"content is neither a URL nor base64"},
		`[{"path": "/etc/f", "content": "file:///a"}]`:   {"content: "},
		`[{"path": "/etc/f", "content": "http://{x}/"}]`: {"content: field {x} of a URL"},
		`[{` + good + `, "mode": "0644"}]`:               {`mode must be a number from 0 to 4095, got "0644"`},
		`[{` + good + `, "mode": 4096}]`:                 {"mode must be a number"},
		`[{` + good + `, "mode": true}]`:                 {"mode must be a number"},
		`[{` + good + `, "dirmode": -1}]`:                {"dirmode must be a number"},
		`[{` + good + `, "owner": 1.5}]`:                 {"owner must be a number from -1 to 4294967294, got 1.5"},
		`[{` + good + `, "group": null}]`:                {"group must be a number from -1 to 4294967294, got null"},
		`[{` + good + `, "partition": 0}]`:               {"partition must be a number from 1 on, or a device"},
		`[{` + good + `, "partition": -1}]`:              {"partition must be a number"},
		`[{` + good + `, "partition": true}]`:            {"partition must be a number"},
		`[{` + good + `, "partition": "/etc/fstab"}]`:    {"partition must be a number"},
		`[{` + good + `, "partition": "/dev/../etc"}]`:   {"partition must be a number"},
		`[{` + good + `, "partition": "LABEL=root"}]`:    {"device below /dev, got LABEL=root"},
	} {
		args := map[string]json.RawMessage{"files": json.RawMessage(text)}
		err := in.Run(t.Context(), args)
		if typeOf(err) != "InvalidCommandParamsError" {
			t.Errorf("%s: got %v, want an InvalidCommandParamsError", text, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v, want %q in it", text, err, part)
			}
		}
	}
	for _, property := range []string{`{"path": "/etc/f"}`, `"text"`, `[1]`} {
		n, err := node.FromJSON([]byte(`{"uuid": "u", "properties": {"inject_files": ` + property + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		in.Node = n
		if err := in.Run(t.Context(), nil); typeOf(err) != "InvalidCommandParamsError" ||
			!strings.Contains(err.Error(), "property 'inject_files' must be a list") {
			t.Errorf("property %s: got %v, want a refusal", property, err)
		}
	}
	in.Node = nil
	args := map[string]json.RawMessage{"verify_ca": json.RawMessage(`"no"`)}
	if err := in.Run(t.Context(), args); typeOf(err) != "InvalidCommandParamsError" ||
		!strings.Contains(err.Error(), `'verify_ca' must be true or false, got "no"`) {
		t.Errorf("verify_ca: got %v, want a refusal with the value", err)
	}
}

// Python's str.format returns the same results for the same objects.
//
// Parity: P8 (fields of URLs)
func TestExpandFields(t *testing.T) {
	values := map[string]any{
		"node": map[string]any{
			"uuid": "u", "name": nil, "n": 4.0, "f": 0.5, "yes": true, "no": false, "list": []any{"a", "b"},
			"properties": map[string]any{"cpu arch": "x86"},
		},
		"ports": []any{map[string]any{"address": "52:54:00:00:00:01"}},
	}
	got := map[string]string{}
	want := map[string]string{
		"":                                   "",
		"http://h/{node[uuid]}":              "http://h/u",
		"{ports[0][address]}x":               "52:54:00:00:00:01x",
		"{node[properties][cpu arch]}":       "x86",
		"{node[list][1]}{node[n]}/{node[f]}": "b4/0.5",
		"{node[yes]}{node[no]}":              "TrueFalse",
		"{{node}}{{}}":                       "{node}{}",
	}
	for text := range want {
		expanded, err := expandFields(text, values)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		got[text] = expanded
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{
		"{", "}", "{node", "a}b", "{}", "{0}", "{x}", "{node}", "{ports}", "{node[]}", "{node[}", "{node[none]}",
		"{node.uuid}", "{node[uuid]!r}", "{node[uuid]:>9}", "{node[uuid].x}", "{node[uuid]x}", "{ports[1]}",
		"{ports[-1]}", "{ports[address]}", "{node[name]}", "{node[uuid][0]}",
	} {
		if expanded, err := expandFields(text, values); err == nil {
			t.Errorf("%q: got %q, want an error", text, expanded)
		}
	}
}

func FuzzExpandFields(f *testing.F) {
	for _, text := range []string{"http://h/{node[uuid]}", "{ports[0][address]}", "{{}}", "{node[", "}"} {
		f.Add(text)
	}
	values := map[string]any{"node": map[string]any{"uuid": "u"}, "ports": []any{}}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := expandFields(text, values)
		if err == nil && !strings.ContainsAny(text, "{}") && got != text {
			t.Errorf("%q: got %q, want the same", text, got)
		}
	})
}
