package main

import (
	"context"
	"fmt"
	"os"

	"ironroot/agent"
	"ironroot/release"
	"ironroot/release/bill"
)

// findSource describes the source in the current directory.
func findSource(ctx context.Context) (release.Source, error) {
	source, err := release.FindSource(ctx, ".")
	if source.Err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "warning:", source.Err)
	}
	return source, err
}

// billOf returns what a build from a source says about itself.
func billOf(source release.Source) *bill.Build {
	return &bill.Build{
		Version: agent.Version, Commit: source.Commit, Modified: source.Modified, Created: source.Date,
	}
}
