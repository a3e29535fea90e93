package server

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Script describes an iPXE script that boots a kernel and initramfs.
type Script struct {
	Kernel  string   // URL
	Initrds []string // URLs; the kernel unpacks them in this order
	Cmdline string
	Retries int // number of retries of a failed download; 0 means 5
}

// Render returns the text of the script. Text that iPXE would interpret is an error: a line break, after which a
// command begins, and the characters of its own syntax. The error does not contain Cmdline, which can contain secrets.
func (s Script) Render() ([]byte, error) {
	for _, value := range append([]string{s.Kernel, s.Cmdline}, s.Initrds...) {
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, errors.New("ipxe script: line break in a URL or in the kernel parameters")
		}
		if strings.Contains(value, "${") {
			return nil, errors.New(`ipxe script: "${", which iPXE replaces, in a URL or in the kernel parameters`)
		}
		for _, word := range strings.Fields(value) {
			if strings.HasPrefix(word, "#") || slices.Contains([]string{"||", "&&", ";"}, word) {
				return nil, errors.New(`ipxe script: kernel parameter "||", "&&" or ";", or one that begins with "#"`)
			}
		}
	}
	if s.Kernel == "" {
		return nil, fmt.Errorf("ipxe script: no kernel URL")
	}
	retries := s.Retries
	if retries == 0 {
		retries = 5
	}
	var names, arguments []string
	for _, initrd := range s.Initrds {
		name, err := fileName(initrd)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		// On UEFI the kernel's EFI stub finds the files only by these arguments; BIOS ignores them.
		arguments = append(arguments, "initrd="+name)
	}
	kernel := strings.Join(append(append([]string{s.Kernel}, arguments...), s.Cmdline), " ")
	var text strings.Builder
	fmt.Fprintf(&text, "#!ipxe\n\nset tries:int32 0\n\n:load\nimgfree\n")
	fmt.Fprintf(&text, "kernel %s || goto failed\n", strings.TrimSpace(kernel))
	for i, initrd := range s.Initrds {
		fmt.Fprintf(&text, "initrd --name %s %s || goto failed\n", names[i], initrd)
	}
	fmt.Fprintf(&text, "boot\n\n:failed\ninc tries\niseq ${tries} %d || goto again\n", retries)
	fmt.Fprintf(&text, "echo Giving up after ${tries} tries\nexit 1\n\n:again\nsleep ${tries}\ngoto load\n")
	return []byte(text.String()), nil
}

// fileName returns the last part of a URL's path, which iPXE uses as the file name.
func fileName(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("ipxe script: initramfs URL: %w", err)
	}
	name := path.Base(u.Path)
	if name == "." || name == "/" || strings.ContainsAny(name, " \t") {
		return "", fmt.Errorf("ipxe script: initramfs URL %s does not end in a file name", raw)
	}
	return name, nil
}
