//go:build linux

// Command premount is the first program of a machine (rdinit=/premount). It leaves file systems mounted where images
// of ironic-python-agent's kind mount the config drive, two on top of each other, and then becomes /init.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	err := os.MkdirAll("/mnt/config", 0o700)
	for range 2 {
		if err == nil {
			err = unix.Mount("premounted", "/mnt/config", "tmpfs", 0, "")
		}
	}
	if err == nil {
		err = unix.Exec("/init", []string{"/init"}, os.Environ())
	}
	fmt.Println("premount:", err)
}
