package extension

import (
	"ironroot/agent/command"
	"ironroot/agent/hardware"
)

// clean lists and executes clean steps, which prepare a node for its next tenant.
func clean(d Deps) command.Extension {
	return steps{d: d, kind: hardware.Clean}.extension()
}
