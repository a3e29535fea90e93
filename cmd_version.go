package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"ironroot/agent"
)

// versionCmd prints what was built from what.
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
