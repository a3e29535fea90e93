package extension

import "ironroot/agent/command"

// deploy is the extension of that name.
func deploy(d Deps) command.Extension { return command.Extension{Name: "deploy"} }
