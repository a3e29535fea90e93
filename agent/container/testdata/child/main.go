// Command child is a static program for the processes of containers. A test with the race detector is not static, and
// would not find its libraries in the root of a container.
package main

import (
	"os"

	"ironroot/agent/container"
)

func main() {
	container.Child()
	os.Exit(1)
}
