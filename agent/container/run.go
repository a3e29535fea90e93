package container

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"ironroot/internal/confine"
)

// maxLine is the longest line of a program's output in bytes. The rest of a longer line is dropped.
const maxLine = 4 << 10

// defaultPath is the PATH of an image that has none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// arguments returns the program of a container and its arguments.
func (b *Bundle) arguments(s Spec) ([]string, error) {
	args := s.Args
	if len(args) == 0 {
		args = slices.Concat(b.image.Config.Entrypoint, b.image.Config.Cmd)
	}
	if len(args) == 0 || args[0] == "" {
		return nil, fmt.Errorf("%w: the image names no program", ErrNotFound)
	}
	for _, text := range slices.Concat(args, s.Env) {
		if strings.ContainsRune(text, 0) {
			return nil, errors.New("an argument or a variable contains a zero byte")
		}
	}
	return args, nil
}

// environment returns the environment of a program. Later entries replace earlier ones.
func (b *Bundle) environment(s Spec) []string {
	given := slices.Concat(
		[]string{defaultPath, "container=podman", "HOME=/root", "TERM=dumb", "HOSTNAME=" + b.host()},
		b.image.Config.Env, s.Env,
	)
	var list []string
	for _, entry := range given {
		name, _, found := strings.Cut(entry, "=")
		if !found || name == "" {
			continue
		}
		list = slices.DeleteFunc(list, func(other string) bool { return strings.HasPrefix(other, name+"=") })
		list = append(list, entry)
	}
	return list
}

// host returns the host name of a container.
func (b *Bundle) host() string { return b.image.ID[:min(12, len(b.image.ID))] }

// files returns the files of a container: the files of s, and the description by which programs recognize a container
// of podman.
func (b *Bundle) files(s Spec) map[string]File {
	environment := fmt.Sprintf("engine=\"podman-5.0.0\"\nname=%q\nid=%q\nimage=%q\nimageid=%q\nrootless=0\n",
		"ironroot", b.image.ID, b.image.Name, b.image.ID)
	files := map[string]File{"/run/.containerenv": {Content: []byte(environment), Mode: 0o644}}
	for name, f := range s.Files {
		files[path.Clean(name)] = f
	}
	return files
}

// checkPaths checks the paths of a Spec.
func (b *Bundle) checkPaths(s Spec) error {
	if s.Layout != "" && !b.kept {
		return errors.New("the image was not kept as an OCI layout")
	}
	names := []string{}
	if s.Layout != "" {
		names = append(names, s.Layout)
	}
	for name := range s.Files {
		names = append(names, name)
	}
	for _, m := range s.Mounts {
		names = append(names, m.Source, m.Target)
	}
	for _, name := range names {
		if !path.IsAbs(name) || path.Clean(name) == "/" || strings.ContainsRune(name, 0) {
			return fmt.Errorf("path %q: want an absolute path other than /", name)
		}
	}
	return nil
}

// readOutput passes each line of a program's output to out, which may be nil, and returns the end of the output.
func readOutput(in io.Reader, out Output) string {
	reader, kept := bufio.NewReaderSize(in, maxLine), []byte(nil)
	for {
		piece, more, err := reader.ReadLine()
		line := strings.TrimRight(string(piece), "\r")
		for more && err == nil { // the rest of a long line
			_, more, err = reader.ReadLine()
		}
		if line != "" || err == nil {
			kept = append(append(kept, line...), '\n')
			kept = kept[max(0, len(kept)-confine.MaxOutput):]
			if out != nil {
				out.Line(line)
			}
		}
		if err != nil {
			return strings.TrimSpace(string(kept))
		}
	}
}
