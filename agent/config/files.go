package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ironroot/internal/bounded"
)

// DefaultFile and DefaultDir are the paths of the configuration in ironic-python-agent's images.
const (
	DefaultFile = "/etc/ironic_python_agent/ironic_python_agent.conf"
	DefaultDir  = "/etc/ironic-python-agent.d"
)

// maxFile limits the bytes of a configuration file.
const maxFile = 1 << 20

// files reads the configuration files: the existing files of Sources, then the files of the flags.
func (l *loader) files(s Sources, flags flagSet) {
	for _, name := range s.Files {
		l.file(name, false)
	}
	for _, dir := range s.ConfigDirs {
		l.dir(dir, false)
	}
	for _, name := range flags.configFiles {
		l.file(name, true)
	}
	for _, dir := range flags.configDirs {
		l.dir(dir, true)
	}
}

// dir reads the *.conf files of a directory in alphabetical order.
func (l *loader) dir(dir string, mustExist bool) {
	entries, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) && !mustExist {
		return
	}
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("configuration directory: %w", err))
		return
	}
	for _, entry := range entries {
		if !entry.IsDir() && strings.HasSuffix(entry.Name(), ".conf") {
			l.file(filepath.Join(dir, entry.Name()), true)
		}
	}
}

func (l *loader) file(name string, mustExist bool) {
	data, err := bounded.ReadFile(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !mustExist {
		return
	}
	if err == nil {
		err = l.ini(name, data)
	}
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("configuration file %s: %w", name, err))
	}
}

// ini sets the options of a file.
func (l *loader) ini(name string, data []byte) error {
	settings, err := parseINI(string(data))
	if err != nil {
		return err
	}
	for _, s := range settings {
		for _, o := range l.options {
			if o.matches(s.group, s.name) && !o.flagOnly {
				l.setFrom(o, "file "+name, s.value, l.unsigned.hasFile(name))
			}
		}
	}
	return nil
}

// environment reads the environment variables.
func (l *loader) environment(environ []string) {
	for _, o := range l.options {
		if o.flagOnly {
			continue
		}
		for _, name := range o.envNames() {
			for _, entry := range environ {
				if key, value, _ := strings.Cut(entry, "="); key == name {
					l.set(o, "environment "+name, value)
				}
			}
		}
	}
}
