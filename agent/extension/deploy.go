package extension

import (
	"ironroot/agent/command"
	"ironroot/agent/hardware"
)

// deploy lists and executes deploy steps, which install an operating system on a node.
func deploy(d Deps) command.Extension {
	return steps{d: d, kind: hardware.Deploy}.extension()
}
