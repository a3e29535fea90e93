//go:build linux

// Command program runs the attacks and prints their report. With an argument it fails, so that its output is shown.
package main

import (
	"fmt"
	"os"

	"ironroot/internal/attack"
)

func main() {
	if err := attack.Run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) > 1 {
		os.Exit(4)
	}
}
