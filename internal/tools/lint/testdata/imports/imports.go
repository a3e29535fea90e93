// Package imports has the imports that lint rejects.
package imports

import "C"

import (
	"os"
	run "os/exec"
)

var (
	_ = run.Command
	_ = os.StartProcess // golangci-lint rejects it
)
