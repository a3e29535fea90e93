//go:build linux

// Command program runs the attacks and prints their report as JSON. With an argument it fails, so that its output is shown.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"ironroot/internal/attack"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(attack.Run()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) > 1 {
		os.Exit(4)
	}
}
