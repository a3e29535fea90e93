//go:build linux

// Command attackprobe runs the attacks of package attack and prints the report as JSON. With an argument it exits with
// status 4: the GRUB of an image shows its output only if it fails.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"ironroot/internal/test/attack"
)

func main() {
	report, err := attack.Run()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attackprobe:", err)
		os.Exit(1)
	}
	if len(os.Args) > 1 {
		os.Exit(4)
	}
}
