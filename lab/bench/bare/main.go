// Command bare is the least an /init can be: it prints one line and waits. How soon the line appears is what kernel and
// machine need; whatever a ramdisk needs beyond that is its own.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if os.Getpid() != 1 {
		return // the kernel asks for a module: /sbin/modprobe is this program too
	}
	fmt.Println("BARE-INIT")
	time.Sleep(time.Hour)
}
