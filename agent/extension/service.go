package extension

import (
	"ironroot/agent/command"
	"ironroot/agent/hardware"
)

// service lists and executes service steps, which change a node in use.
func service(d Deps) command.Extension {
	return steps{d: d, kind: hardware.Service}.extension()
}
