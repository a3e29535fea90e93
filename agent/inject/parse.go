package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"ironroot/agent/fault"
	"ironroot/storage/image/fetch"
)

// property is the property of the node with files.
const property = "inject_files"

// file is a file that is written or removed.
type file struct {
	path      string // with a leading slash
	device    string // of the file system; "" means a partition of the root disk
	partition int    // number; 0 means the partition that has the directory
	deleted   bool
	data      []byte // the content, unless url is set
	url       string
	mode      uint32 // 0 leaves it as it is
	dirMode   uint32 // of the directory, if it is created; 0 is 0755
	owner     int    // -1 leaves it as it is
	group     int    // -1 leaves it as it is
}

// content returns a reader of the file's content, unless that is at a URL.
func (f file) content() io.Reader { return bytes.NewReader(f.data) }

// parse returns the files of a call, first the files of the node's property. Its error names everything that is
// wrong with them.
func (in Injector) parse(args map[string]json.RawMessage) (files []file, verify bool, err error) {
	verify = true
	if raw, given := args[VerifyCAArgument]; given {
		if err := json.Unmarshal(raw, &verify); err != nil {
			return nil, false, fault.InvalidCommandParams("'%s' must be true or false, got %s", VerifyCAArgument, raw)
		}
	}
	values := map[string]any{"node": map[string]any{}, "ports": anyList(in.Ports)}
	var list json.RawMessage
	if in.Node != nil {
		values["node"] = in.Node.Raw()
		if list, err = json.Marshal(in.Node.Properties()[property]); err != nil {
			return nil, false, fault.InvalidCommandParams("property '%s': %w", property, err)
		}
	}
	ofNode, wrong, err := parseFiles("property '"+property+"'", list, values)
	if err != nil {
		return nil, false, err
	}
	ofStep, wrongOfStep, err := parseFiles("'"+FilesArgument+"'", args[FilesArgument], values)
	if err != nil {
		return nil, false, err
	}
	if wrong = append(wrong, wrongOfStep...); len(wrong) > 0 {
		return nil, false, fault.InvalidCommandParams("Validation of files failed: %s", strings.Join(wrong, "; "))
	}
	return append(ofNode, ofStep...), verify, nil
}

// parseFiles parses a list, which errors refer to by name. wrong describes all invalid entries. values are the fields
// that a URL can name.
func parseFiles(name string, list json.RawMessage, values map[string]any) (files []file, wrong []string, err error) {
	var entries []map[string]json.RawMessage
	if len(list) > 0 {
		if err := json.Unmarshal(list, &entries); err != nil {
			return nil, nil, fault.InvalidCommandParams("%s must be a list of objects", name)
		}
	}
	for i, entry := range entries {
		f, texts := parseFile(entry, values)
		for _, text := range texts {
			wrong = append(wrong, fmt.Sprintf("entry %d of %s: %s", i+1, name, text))
		}
		files = append(files, f)
	}
	return files, wrong, nil
}

func anyList(ports []map[string]any) []any {
	list := make([]any, len(ports))
	for i, p := range ports {
		list[i] = p
	}
	return list
}

// parseFile returns a file, and all that is wrong with it. values are those that a URL can name.
func parseFile(entry map[string]json.RawMessage, values map[string]any) (f file, wrong []string) {
	p := entryParser{entry: entry}
	var name, content string
	p.decode("path", &name, "a text")
	p.decode("deleted", &f.deleted, "true or false")
	f.partition, f.device = p.partition()
	f.mode, f.dirMode = uint32(p.number("mode", 0, 0, 0o7777)), uint32(p.number("dirmode", 0, 0, 0o7777))
	f.owner, f.group = int(p.number("owner", -1, -1, maxID)), int(p.number("group", -1, -1, maxID))
	hasContent := p.decode("content", &content, "a text")
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		if !p.known[key] {
			p.fail("unexpected field '%s'", key)
		}
	}
	f.path = path.Clean("/" + name)
	switch {
	case name == "":
		p.fail("expected a path")
	case strings.HasSuffix(name, "/"), f.path == "/":
		p.fail("path %q is a directory", name)
	case path.Dir(f.path) == "/" && f.partition == 0 && f.device == "":
		p.fail("path %q is in the root directory, which requires a partition", name)
	}
	switch {
	case f.deleted && content != "":
		p.fail("content cannot be used with deleted")
	case !f.deleted && !hasContent:
		p.fail("expected content or deleted")
	case f.deleted:
	case strings.Contains(content, "://"):
		f.url = p.url(content, values)
	default:
		f.data = p.base64(content)
	}
	return f, p.wrong
}

const maxID = 1<<32 - 2 // the largest number of a user or group

// entryParser reads the fields of an object and collects what is wrong with them.
type entryParser struct {
	entry map[string]json.RawMessage
	known map[string]bool
	wrong []string
}

func (p *entryParser) fail(format string, args ...any) {
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

// field returns a field, and reports whether it is there.
func (p *entryParser) field(name string) (raw json.RawMessage, given bool) {
	if p.known == nil {
		p.known = map[string]bool{}
	}
	p.known[name] = true
	raw, given = p.entry[name]
	return raw, given
}

// decode decodes a field, and reports whether it is there and not null.
func (p *entryParser) decode(name string, to any, want string) bool {
	raw, given := p.field(name)
	if !given || string(raw) == "null" {
		return false
	}
	if json.Unmarshal(raw, to) != nil {
		p.fail("%s must be %s", name, want)
	}
	return true
}

// number returns a whole number, or fallback if the field is not there.
func (p *entryParser) number(name string, fallback, low, high int64) int64 {
	raw, given := p.field(name)
	if !given {
		return fallback
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < low || n > high {
		p.fail("%s must be a number from %d to %d, got %s", name, low, high, raw)
		return fallback
	}
	return n
}

// partition returns the number of a partition or a device, neither if the field is not there.
func (p *entryParser) partition() (number int, device string) {
	const name = "partition"
	raw, _ := p.field(name)
	var text string
	if len(raw) > 0 && raw[0] != '"' && string(raw) != "null" {
		text = string(raw)
	} else if !p.decode(name, &text, "a number or a device") || text == "" {
		return 0, ""
	}
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return n, ""
	}
	if strings.HasPrefix(text, "/dev/") && path.Clean(text) == text {
		return 0, text
	}
	p.fail("partition must be a number from 1 on, or a device below /dev, got %s", text)
	return 0, ""
}

// url returns the URL of a file's content with the values of its fields.
func (p *entryParser) url(text string, values map[string]any) string {
	address, err := expandFields(text, values)
	if err == nil {
		err = fetch.CheckURL(address)
	}
	if err != nil {
		p.fail("content: %v", err)
	}
	return address
}

// base64 returns the content of a file. Line breaks and spaces are ignored.
func (p *entryParser) base64(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		p.fail("content is neither a URL nor base64")
	}
	return data
}
