//go:build linux

package conformance

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// injectDisk makes the root disk: a file system with the usual directories, a vfat one, another one with two
// directories, and a partition of LVM.
func injectDisk(path string) error {
	const part = 64 * mib
	err := sequence(sized(5*gib), sfdisk("label: gpt\nsize=131072, type=linux\nsize=131072, type=uefi\n"+
		"size=131072, type=linux\nsize=131072, type=lvm\n"))(path)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "root")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	root, other := filepath.Join(dir, "root"), filepath.Join(dir, "other")
	for _, name := range []string{
		root + "/etc/conf.d", root + "/usr", root + "/home/user", other + "/log",
		other + "/etc",
	} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
	}
	for name, mode := range map[string]os.FileMode{
		"hosts": 0o640, "replaced": 0o600, "removed": 0o644,
		"kept": os.ModeSetuid | 0o711,
	} {
		file := filepath.Join(root, "etc", name)
		if err := errors.Join(os.WriteFile(file, []byte("former "+name), 0o600), os.Chmod(file, mode)); err != nil {
			return err
		}
	}
	if err := os.Symlink("hosts", filepath.Join(root, "etc", "link")); err != nil {
		return err
	}
	for i, content := range []string{root, "", other} {
		fs := filepath.Join(dir, strconv.Itoa(i))
		if err := errors.Join(os.WriteFile(fs, nil, 0o600), os.Truncate(fs, part)); err != nil {
			return err
		}
		if content == "" {
			err = errors.Join(run("", "mkfs.vfat", fs), run("", "mmd", "-i", fs, "::/EFI"))
		} else {
			err = run("", "mke2fs", "-q", "-F", "-t", "ext4", "-E", "root_owner=0:0", "-L", fmt.Sprintf("part%d", i),
				"-d", content, fs)
		}
		if err != nil {
			return err
		}
		if err := run("", "dd", "if="+fs, "of="+path, "conv=notrunc,sparse", "bs=1M",
			fmt.Sprintf("seek=%d", 1+64*i)); err != nil {
			return err
		}
	}
	return nil
}

var inode = regexp.MustCompile(`Type: (\w+) +Mode: +(\d+)[\s\S]*?User: +(\d+) +Group: +(\d+)`)

// readFiles describes files of a disk with type, mode, owner, group and content.
func readFiles(disk string, files []string) (map[string]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	t, err := readTable(disk, 512)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, file := range files {
		number, name, _ := strings.Cut(file, ":")
		offset := int64(-1)
		for _, p := range t.Partitions {
			if strconv.Itoa(p.Number) == number {
				offset = p.Start * 512
			}
		}
		if number == "2" {
			out, err := exec.Command("mtype", "-i", fmt.Sprintf("%s@@%d", disk, offset), "::"+name).Output()
			if err != nil {
				out = []byte("none")
			}
			found[file] = string(out)
			continue
		}
		debugfs := func(command string) string {
			out, err := exec.Command("debugfs", "-R", command+" "+name,
				fmt.Sprintf("%s?offset=%d", disk, offset)).Output()
			if err != nil {
				return err.Error()
			}
			return string(out)
		}
		found[file] = "none"
		if fields := inode.FindStringSubmatch(debugfs("stat")); fields != nil {
			found[file] = fmt.Sprintf("%s %s %s:%s", fields[1], fields[2], fields[3], fields[4])
			if fields[1] == "regular" {
				found[file] += " " + debugfs("cat")
			}
		}
	}
	return found, nil
}

// injections are the scenarios of the step inject_files.
func injections() []scenario {
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	file := func(path string, replaced object) object {
		return with(object{"path": path, "content": text("content of " + path)}, replaced)
	}
	inject := func(name string, files []any, observed ...string) scenario {
		return scenario{name: "inject/" + name, files: observed, do: []request{
			step("deploy", "inject_files", nil, object{"args": object{"files": files}}),
		}}
	}
	one := func(name string, file object, observed ...string) scenario {
		return inject(name, []any{file}, observed...)
	}
	args := func(name string, node, args object, observed ...string) scenario {
		return scenario{name: "inject/" + name, files: observed, do: []request{
			step("deploy", "inject_files", node, object{"args": args}),
		}}
	}
	url := func(path string) object { return object{"content": imageURL + path} }
	return []scenario{
		one("new", file("/etc/new", nil), "1:/etc/new"),
		one("existing", file("/etc/replaced", nil), "1:/etc/replaced"),
		one("existing with mode", file("/etc/hosts", object{"mode": 0o444, "owner": 7}), "1:/etc/hosts"),
		one("existing set-user-id", file("/etc/kept", nil), "1:/etc/kept"),
		one("mode and owner", file("/etc/owned", object{"mode": 0o600, "owner": 1000, "group": 100}), "1:/etc/owned"),
		one("group only", file("/etc/grouped", object{"group": 5}), "1:/etc/grouped"),
		one("set-user-id", file("/etc/suid", object{"mode": 0o4755, "owner": 3}), "1:/etc/suid"),
		one("mode 0", file("/etc/mode0", object{"mode": 0}), "1:/etc/mode0"),
		one("directories", file("/etc/a/b/file", nil), "1:/etc/a", "1:/etc/a/b", "1:/etc/a/b/file"),
		one("dirmode", file("/etc/c/d/file", object{"dirmode": 0o700, "owner": 9}), "1:/etc/c", "1:/etc/c/d",
			"1:/etc/c/d/file"),
		one("dirmode of an existing one", file("/etc/conf.d/file", object{"dirmode": 0o700}), "1:/etc/conf.d",
			"1:/etc/conf.d/file"),
		one("empty", file("/etc/empty", object{"content": ""}), "1:/etc/empty"),
		one("partition", file("/EFI/new", object{"partition": 2}), "2:/EFI/new"),
		one("partition as text", file("/etc/other", object{"partition": "3"}), "1:/etc/other", "3:/etc/other"),
		one("device", file("/etc/device", object{"partition": "/dev/sda3"}), "1:/etc/device", "3:/etc/device"),
		one("device by label", file("/etc/label", object{"partition": "/dev/disk/by-label/part2"}), "1:/etc/label",
			"3:/etc/label"),
		one("root directory", file("/top", object{"partition": 1}), "1:/top"),
		one("root directory without a partition", file("/top2", nil), "1:/top2"),
		one("directory of another partition", file("/log/new", nil), "1:/log/new", "3:/log/new"),
		one("directory of both", file("/etc/both", nil), "1:/etc/both", "3:/etc/both"),
		one("no such directory", file("/nowhere/new", nil), "1:/nowhere/new", "3:/nowhere/new"),
		one("no such directory with a partition", file("/nowhere/new", object{"partition": 3}), "3:/nowhere",
			"3:/nowhere/new"),
		one("no such partition", file("/etc/x", object{"partition": 9})),
		one("partition 0", file("/etc/zero", object{"partition": 0}), "1:/etc/zero"),
		one("no such device", file("/etc/x", object{"partition": "/dev/nothing"})),
		one("partition without a file system", file("/etc/x", object{"partition": 4})),
		one("relative", file("etc/relative", nil), "1:/etc/relative"),
		one("dots", file("/etc/conf.d/../dots", nil), "1:/etc/dots"),
		one("link", file("/etc/link", nil), "1:/etc/link", "1:/etc/hosts"),
		one("file as a directory", file("/etc/removed/x", nil), "1:/etc/removed"),
		one("directory as a file", file("/etc/conf.d", nil), "1:/etc/conf.d"),
		one("deleted", object{"path": "/etc/removed", "deleted": true}, "1:/etc/removed"),
		one("deleted and missing", object{"path": "/etc/missing", "deleted": true}, "1:/etc/missing"),
		one("deleted directory", object{"path": "/etc/conf.d", "deleted": true}, "1:/etc/conf.d"),
		one("deleted false", file("/etc/notdeleted", object{"deleted": false}), "1:/etc/notdeleted"),
		one("deleted with content", file("/etc/x", object{"deleted": true}), "1:/etc/x"),
		one("unknown key", file("/etc/x", object{"colour": "red"}), "1:/etc/x"),
		one("no path", object{"content": text("x")}),
		one("path null", object{"path": nil, "content": text("x")}),
		one("path of a directory", file("/etc/x/", nil), "1:/etc/x"),
		one("path as a number", object{"path": 5, "content": text("x")}),
		one("mode as text", file("/etc/x", object{"mode": "0644"}), "1:/etc/x"),
		one("owner as text", file("/etc/x", object{"owner": "root"}), "1:/etc/x"),
		one("mode as a boolean", file("/etc/x", object{"mode": true}), "1:/etc/x"),
		one("no content", object{"path": "/etc/x"}, "1:/etc/x"),
		one("content not base64", file("/etc/x", object{"content": "%%%"}), "1:/etc/x"),
		one("content without padding", file("/etc/unpadded", object{"content": "YWI"}), "1:/etc/unpadded"),
		one("content with line ends", file("/etc/lines", object{"content": "YW\nJj\n"}), "1:/etc/lines"),
		one("url", file("/etc/url", url("/file")), "1:/etc/url"),
		one("url with fields", file("/etc/fields", url("/{node[uuid]}/{ports[0][address]}")), "1:/etc/fields"),
		one("url with an unknown field", file("/etc/nofield", url("/{node[nothing]}")), "1:/etc/nofield"),
		one("url not found", file("/etc/notfound", url("/nothing")), "1:/etc/notfound"),
		one("url without a server", file("/etc/noserver", object{"content": "http://10.0.2.2:9/x"}),
			"1:/etc/noserver"),
		inject("two", []any{file("/etc/two1", nil), file("/etc/two2", object{"partition": 3})}, "1:/etc/two1",
			"3:/etc/two2"),
		inject("second invalid", []any{file("/etc/first", nil), file("/etc/second", object{"colour": "red"})},
			"1:/etc/first"),
		inject("second fails", []any{file("/etc/first2", nil), file("/nowhere2/second", nil)}, "1:/etc/first2"),
		inject("none", []any{}),
		inject("entry of text", []any{"path"}),
		args("no arguments", nil, object{}),
		args("files null", nil, object{"files": nil}),
		args("files of text", nil, object{"files": "text"}),
		args("files of an object", nil, object{"files": object{"path": "/etc/x"}}),
		args("more arguments", nil, object{"files": []any{}, "more": 1}),
		args("verify_ca", nil, object{"files": []any{file("/etc/verify", url("/file"))}, "verify_ca": false},
			"1:/etc/verify"),
		args("property", object{"properties": object{"inject_files": []any{file("/etc/property", nil)}}}, object{},
			"1:/etc/property"),
		args("property and argument", object{"properties": object{"inject_files": []any{file("/etc/merged", nil)}}},
			object{"files": []any{file("/etc/merged", object{"content": text("argument")})}}, "1:/etc/merged"),
		args("property of an object", object{"properties": object{"inject_files": object{"path": "/etc/x"}}},
			object{}),
		{
			name: "inject/service", files: []string{"1:/etc/service"},
			do: []request{step("service", "inject_files", nil, object{
				"args": object{"files": []any{file("/etc/service", nil)}},
			})},
		},
		{name: "inject/no root disk", do: []request{step("deploy", "inject_files", object{
			"properties": object{"root_device": object{"serial": "UNKNOWN"}},
		}, object{"args": object{"files": []any{file("/etc/x", nil)}}})}},
	}
}

// publishInjected puts the files that injections download on the server.
func publishInjected(m *machine) {
	m.images.Bytes("file", []byte("content of a URL"))
	m.images.Bytes(nodeUUID+"/"+nodeMAC, []byte("content for a node"))
}
