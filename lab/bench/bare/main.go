// Command bare is the least an /init can be: it prints one line and waits. How soon the line appears is what kernel and
// machine need; whatever a ramdisk needs beyond that is its own.
package main

import (
	"fmt"
	"time"
)

func main() {
	fmt.Println("BARE-INIT")
	time.Sleep(time.Hour)
}
