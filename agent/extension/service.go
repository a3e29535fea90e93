package extension

import "ironroot/agent/command"

// service is the extension of that name.
func service(d Deps) command.Extension { return command.Extension{Name: "service"} }
