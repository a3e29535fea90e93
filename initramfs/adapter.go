package initramfs

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"ironroot/initramfs/squashfs"
)

// adapterFiles are the adapter for plug-ins of ironic-python-agent, and the modules that replace ironic-python-agent's
// in a root without it.
//
//go:embed all:ipa
var adapterFiles embed.FS

const (
	adapterDir = "usr/lib/ironroot/ipa"
	// pluginGroup is the entry point group of hardware managers.
	pluginGroup = "ironic_python_agent.hardware_managers"
)

// metadataFile matches the files with the entry points of installed Python packages. The name of the package is
// captured.
var metadataFile = regexp.MustCompile(
	`^usr/(?:local/)?lib/python3[^/]*/(?:dist|site)-packages/([^/-]+)[^/]*\.(?:dist|egg)-info/entry_points\.txt$`)

var pluginName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$`)

// launcher is the manager of a plug-in. Python does not write compiled files, and ignores the user's settings.
const launcher = `#!/%s -BI
import sys
sys.path.insert(0, "/` + adapterDir + `")
from ironroot_adapter import main
main(%q)
`

// adapterEntries returns the files that run the plug-ins in a root as managers: the adapter, and one executable for
// each plug-in. There are none if the root has no plug-ins.
func adapterEntries(entries []squashfs.Entry) ([]squashfs.Entry, error) {
	byPath := make(map[string]squashfs.Entry, len(entries))
	for _, e := range entries {
		byPath[e.Path] = e
	}
	var plugins []string
	for _, e := range entries {
		m := metadataFile.FindStringSubmatch(e.Path)
		if m == nil || m[1] == "ironic_python_agent" {
			continue // the managers of ironic-python-agent itself are not for this agent
		}
		text, err := linkedContent(byPath, e.Path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Path, err)
		}
		plugins = append(plugins, entryPoints(text)...)
	}
	if len(plugins) == 0 {
		return nil, nil
	}
	slices.Sort(plugins)
	plugins = slices.Compact(plugins)
	python, err := interpreter(entries)
	if err != nil {
		return nil, fmt.Errorf("hardware manager plug-ins %s: %w", strings.Join(plugins, ", "), err)
	}
	added, err := embedded()
	if err != nil {
		return nil, err
	}
	for _, name := range plugins {
		if !pluginName.MatchString(name) {
			return nil, fmt.Errorf("hardware manager plug-in %q: want a name that matches %v", name, pluginName)
		}
		file := path.Join(managersDir, "ipa-"+name)
		added = append(added, textEntry(file, 0o755, []byte(fmt.Sprintf(launcher, python, name))))
	}
	return added, nil
}

// embedded returns the files of the adapter.
func embedded() ([]squashfs.Entry, error) {
	var list []squashfs.Entry
	err := fs.WalkDir(adapterFiles, "ipa", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(name, "__pycache__") {
			return err
		}
		data, err := adapterFiles.ReadFile(name)
		list = append(list, textEntry(adapterDir+strings.TrimPrefix(name, "ipa"), 0o644, data))
		return err
	})
	return list, err
}

// textEntry returns a file with a content.
func textEntry(name string, mode fs.FileMode, data []byte) squashfs.Entry {
	return squashfs.Entry{Path: name, Mode: mode, Size: int64(len(data)), Content: squashfs.Bytes(data)}
}

// maxLinks limits the links from a name to a content. It is the limit of Linux for symbolic links (MAXSYMLINKS).
const maxLinks = 40

// linkedContent returns the content of a file. The file, and the directories of its path, can be links, or links to
// links.
func linkedContent(entries map[string]squashfs.Entry, name string) (string, error) {
	at, rest := ".", name
	for links := 0; links <= maxLinks; {
		var first string
		first, rest, _ = strings.Cut(rest, "/")
		parent := at
		at = insidePath(path.Join(at, first))
		e, found := entries[at]
		switch {
		case found && e.Mode.Type() == fs.ModeSymlink:
			links++
			if at, rest = parent, e.Target+"/"+rest; path.IsAbs(e.Target) {
				at = "."
			}
		case rest != "": // a directory, which need not have an entry
		case !found:
			return "", fmt.Errorf("%s does not exist", at)
		case e.Mode.IsRegular() && e.Content != nil:
			return contentOf(e)
		case e.Mode.IsRegular() && e.Link != "":
			links++
			at, rest = ".", e.Link
		default:
			return "", fmt.Errorf("%s has type %v and no content", at, e.Mode.Type())
		}
	}
	return "", fmt.Errorf("more than %d links", maxLinks)
}

func contentOf(e squashfs.Entry) (string, error) {
	f, err := e.Content.Open()
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.NewSectionReader(f, 0, e.Size))
	return string(data), err
}

// interpreter returns the path of Python in a root. The one that an administrator installed is preferred, as in PATH.
func interpreter(entries []squashfs.Entry) (string, error) {
	for _, name := range []string{"usr/local/bin/python3", "usr/bin/python3"} {
		if slices.ContainsFunc(entries, func(e squashfs.Entry) bool { return e.Path == name }) {
			return name, nil
		}
	}
	return "", fmt.Errorf("no python3 in /usr/local/bin or /usr/bin")
}

// entryPoints returns the names of the plug-ins in a file with entry points, which has the format of an INI file.
func entryPoints(text string) []string {
	var names []string
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.TrimSpace(line[1 : len(line)-1])
		case section == pluginGroup:
			name, _, _ := strings.Cut(line, "=")
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}
