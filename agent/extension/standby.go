package extension

import "ironroot/agent/command"

// standby is the extension of that name.
func standby(d Deps) command.Extension { return command.Extension{Name: "standby"} }
