package extension

import "ironroot/agent/command"

// clean is the extension of that name.
func clean(d Deps) command.Extension { return command.Extension{Name: "clean"} }
