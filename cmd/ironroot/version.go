package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"ironroot/agent"
)

// versionCmd prints the versions of the program, of its source and of Go.
type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run() error {
	revision := "unknown revision"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	fmt.Printf("ironroot %s (%s, %s)\n", agent.Version, revision, runtime.Version())
	return nil
}
