package extension

import "ironroot/agent/command"

// image is the extension of that name.
func image(d Deps) command.Extension { return command.Extension{Name: "image"} }
