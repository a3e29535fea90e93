package sysfs

import "path/filepath"

// Root represents a machine by the directory that contains its sysfs, procfs and /dev. The zero value is the running
// machine.
type Root struct {
	// Path is the directory that contains sys, dev and proc; "" means "/".
	Path string
	// Files reads sysfs and remembers which files hang; nil remembers and logs nothing.
	Files *Reader
}

// Sys returns the path of a file below /sys.
func (r Root) Sys(elem ...string) string { return r.join("sys", elem) }

// Dev returns the path of a file below /dev.
func (r Root) Dev(elem ...string) string { return r.join("dev", elem) }

// Proc returns the path of a file below /proc.
func (r Root) Proc(elem ...string) string { return r.join("proc", elem) }

func (r Root) join(top string, elem []string) string {
	root := r.Path
	if root == "" {
		root = "/"
	}
	return filepath.Join(append([]string{root, top}, elem...)...)
}
