package kmod

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

// maxModinfo limits the .modinfo section of a module, in bytes.
const maxModinfo = 4 << 20

// Modinfo reads name, size, dependencies, aliases and firmware of an unpacked module from its .modinfo section, a
// sequence of KEY=VALUE strings that are terminated by zero bytes.
func Modinfo(r io.ReaderAt, size int64) (*Module, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("module: %w", err)
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("module: no section .modinfo")
	}
	if section.Size > maxModinfo {
		return nil, fmt.Errorf("module: section .modinfo has %d bytes, want at most %d", section.Size, maxModinfo)
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("module: section .modinfo: %w", err)
	}
	return parseModinfo(data, size), nil
}

func parseModinfo(data []byte, size int64) *Module {
	m := &Module{Size: size}
	for _, field := range bytes.Split(data, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "name":
			m.Name = Normalize(value)
		case "depends":
			m.Depends = append(m.Depends, names(strings.ReplaceAll(value, ",", " "))...)
		case "softdep":
			m.addSoft(value)
		case "alias":
			if value != "" && !strings.ContainsAny(value, "\n") {
				m.Aliases = append(m.Aliases, value)
			}
		case "vermagic":
			m.Release, _, _ = strings.Cut(value, " ")
		case "firmware":
			m.Firmware = append(m.Firmware, value)
		}
	}
	return m
}

// addSoft parses "pre: A B post: C". Names before the first keyword count as "pre".
func (m *Module) addSoft(value string) {
	into := &m.Pre
	for _, word := range strings.Fields(value) {
		switch word {
		case "pre:":
			into = &m.Pre
		case "post:":
			into = &m.Post
		default:
			*into = append(*into, Normalize(word))
		}
	}
}

func names(text string) []string {
	fields := strings.Fields(text)
	for i, name := range fields {
		fields[i] = Normalize(name)
	}
	return fields
}
